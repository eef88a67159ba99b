from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.reasoning.parsing import ThoughtFilter, without_thought

PIECES = st.lists(st.sampled_from(["<think>", "</think>", "<", "th", "ink>", " ", "word", "\n", "</", "[1]"]), max_size=12)


@given(PIECES, st.lists(st.integers(1, 5), max_size=40))
def test_pieces_give_what_the_whole_gives(parts: list[str], sizes: list[int]) -> None:
    text, whole = "".join(parts), ThoughtFilter()
    expected = whole.feed(text) + whole.close()
    thoughts, shown, position = ThoughtFilter(), "", 0
    for size in sizes:
        shown += thoughts.feed(text[position : position + size])
        position += size
    shown += thoughts.feed(text[position:]) + thoughts.close()
    assert shown == expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Hm.</think>It was 1982.", "It was 1982."),
        ("\n<think>\nHm.\n</think>\n\nIt was 1982.", "It was 1982."),
        ("<think>never closed", ""),
        ("It <think>was</think> 1982.", "It <think>was</think> 1982."),
        ("<thin", "<thin"),
        ("", ""),
    ],
)
def test_only_a_thought_at_the_beginning_goes(text: str, answer: str) -> None:
    thoughts = ThoughtFilter()
    assert (thoughts.feed(text) + thoughts.close()).strip() == answer
    assert without_thought(text) == answer
