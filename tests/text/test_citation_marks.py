"""Citations are checked, renumbered and never invented, however the text is cut into pieces."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.text.citation_marks import CitationFilter, renumbered_marks

TEXT = st.lists(
    st.sampled_from(
        [
            "[1]", "[2]", "[9]", "[1, 3]", "[2-3]", " ", "\n", "word", ".", "[", "]", "[x]", "🦜", "[ 2 ]", "12", ",", "[1",
            "3]", "[12345678]", "[1[9]3]",
        ]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@given(TEXT, st.lists(st.integers(1, 6), max_size=40))
def test_pieces_join_to_the_whole(text: str, sizes: list[int]) -> None:
    marks, shown, position = CitationFilter(3), "", 0
    for size in sizes:
        shown += marks.feed(text[position : position + size])
        position += size
    shown += marks.feed(text[position:]) + marks.close()
    assert (shown, marks.cited, marks.removed) == renumbered_marks(text, 3)


@given(TEXT)
def test_every_number_left_is_a_citation(text: str) -> None:
    checked, cited, _ = renumbered_marks(text, 3)
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", checked)]
    assert sorted(set(numbers)) == list(range(1, len(cited) + 1))
    assert len(set(cited)) == len(cited)
    assert set(cited) <= {0, 1, 2}
    assert checked == checked.strip()


@pytest.mark.parametrize(
    ("text", "checked", "cited", "removed"),
    [
        ("A [3]. B [1].", "A [1]. B [2].", [2, 0], 0), ("A [7].", "A.", [], 1), ("A [0] B", "A B", [], 1),
        ("A [1, 9, 2].", "A [1][2].", [0, 1], 1), ("A [1-3].", "A [1][2][3].", [0, 1, 2], 0),
        ("A [3–2].", "A [1][2].", [2, 1], 0), ("A [note] B [1] [", "A [note] B [1] [", [0], 0),
        ("[1] first", "[1] first", [0], 0), ("  padded [1]  ", "padded [1]", [0], 0), ("", "", [], 0),
        ("A [112123].", "A.", [], 1), (f"A [{'1' * 9999}].", "A.", [], 1), ("A [1[9]3] B.", "A [1…3] B.", [], 1),
        ("In 1982 [9] B.", "In 1982 B.", [], 1),
    ],
)  # fmt: skip
def test_examples(text: str, checked: str, cited: list[int], removed: int) -> None:
    assert renumbered_marks(text, 3) == (checked, cited, removed)


def test_only_the_numbers_that_were_shown_count() -> None:
    marks = CitationFilter(frozenset({2, 5}))
    assert marks.feed("a [5] b [3] c [2]") + marks.close() == "a [1] b c [2]"
    assert (marks.cited, marks.removed) == ([4, 1], 1)


def test_text_flows_without_waiting_for_the_end() -> None:
    marks = CitationFilter(1)
    assert marks.feed("It was") == "It was"
    assert marks.feed(" 1982 [") == " 1982"
    assert marks.feed("1") == ""
    assert marks.feed("] and") == " [1] and"
