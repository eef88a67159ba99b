"""Whether two answers to one question exclude each other."""

from __future__ import annotations

import pytest

from langgraph_convcoa.evaluation.metrics.contradiction import contradicts

WHEN, WHO, MANY = "When was Ada Lovelace born?", "Who founded Acme?", "How many people live in Oslo?"
CAPITAL = "What is the capital of France?"


@pytest.mark.parametrize(
    ("question", "earlier", "later", "verdict"),
    [
        (WHEN, "In 1815.", "She was born in 1816 [1].", True),
        (WHEN, "10 December 1815", "In 1815 [2].", False),
        (WHEN, "10 December 1815", "11 December 1815", True),
        (WHEN, "1815", "A long time ago, it seems.", None),
        (WHO, "Ada Lovelace", "Bob Smith founded it.", True),
        (WHO, "Lovelace", "It was founded by Ada Lovelace.", False),
        (WHO, "Acme was founded by Ada Lovelace.", "I could not find this in the documents.", None),
        (WHO, "I don't know.", "Bob Smith", None),
        (CAPITAL, "Paris", "The capital of France is Lyon.", True),
        (CAPITAL, "It is Paris, a large city on the Seine.", "Paris [1]", False),
        (MANY, "two", "3", True),
        (MANY, "two thousand", "2000", None),
        ("Was he a king?", "Yes", "No, a duke.", True),
        ("Was he a king?", "Yes, he was.", "Yes", False),
        ("Was he a king?", "Yes", "He was a duke.", None),
        ("Why did it fail?", "It was too heavy.", "The money ran out.", None),
        (WHO, "", "Bob Smith", None),
        (WHO, " [1]", "Bob Smith", None),
    ],
)
def test_pairs(question: str, earlier: str, later: str, verdict: bool | None) -> None:
    assert contradicts(question, earlier, later) is verdict
    assert contradicts(question, later, earlier) is verdict


@pytest.mark.parametrize("answer", ["Yes", "In 1815.", "Ada Lovelace", "It was blue."])
def test_nothing_contradicts_itself(answer: str) -> None:
    for question in (WHEN, WHO, MANY, CAPITAL, "Was it blue?"):
        assert contradicts(question, answer, f"{answer} [2]") is False
