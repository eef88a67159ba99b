from __future__ import annotations

import pytest

from langgraph_convcoa.reasoning.parsing import without_thought


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
    assert without_thought(text) == answer
