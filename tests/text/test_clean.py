"""Text at the boundaries: proper Unicode of bounded length, and nothing at a terminal or in an export that steers it."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_convcoa.text.citation_marks import CitationFilter, without_marks
from langgraph_convcoa.text.clean import LONGEST_ANSWER, clean, clean_value, cut_answer, flat, json_text, one_line, printable

ANY = st.text(st.characters(exclude_categories=()))
STEERING = [
    *map(chr, (*range(9), *range(11, 32), *range(127, 160), 0x61C, 0x200E, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
]


@given(ANY)
@example("\ud83d\ude00 \ud83d")
def test_cleaned_text_can_be_stored_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert "\x00" not in cleaned
    assert clean(cleaned) == cleaned
    cleaned.encode()
    if not any(sign == "\x00" or "\ud800" <= sign <= "\udfff" for sign in text):
        assert cleaned == text


def test_values_of_json_are_cleaned_whole() -> None:
    assert clean_value({"\x00": ["\ud83d", {"a": ("\x00", 1, None, True, 1.5)}]}) == {
        "\ufffd": ["\ufffd", {"a": ["\ufffd", 1, None, True, 1.5]}]
    }
    assert clean_value([2**63, -(2**63)]) == [None, -(2**63)]
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    assert len(json.dumps(clean_value(deep))) < 200


def test_a_long_answer_is_cut_and_says_so() -> None:
    cut = cut_answer("It is so. " * 1_000_000)
    assert len(cut) == LONGEST_ANSWER
    assert cut.endswith("(cut: an answer has 200,000 characters at most)")
    assert cut_answer(cut) == cut


@given(ANY)
def test_a_flat_text_is_one_line_to_every_reader(text: str) -> None:
    assert len(flat(text).splitlines()) <= 1


@pytest.mark.parametrize("sign", STEERING, ids=lambda sign: f"U+{ord(sign):04X}")
def test_no_sign_that_steers_a_terminal_is_printed(sign: str) -> None:
    for shown in (printable(f"a{sign}b"), one_line(f"a{sign}b"), json_text({sign: [f"a{sign}b"]})):
        assert sign not in shown
    assert json.loads(json_text({"k": f"a{sign}b"})) == {"k": f"a{sign}b"}


@given(st.lists(st.sampled_from(["[", "]", "1", "9", ",", "-", " ", "x", "…"]), max_size=30).map("".join))
@example("[1[9]3]")
def test_no_mark_is_left_or_made_where_marks_are_taken_out(text: str) -> None:
    plain = without_marks(text)
    marks = CitationFilter(available=99)
    marks.feed(plain)
    marks.close()
    assert marks.cited == []
