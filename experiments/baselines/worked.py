"""Worked examples for prompts that show how a question is solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Worked:
    """A question with its simpler questions and their answers, in order, and its own short answer."""

    question: str
    steps: Sequence[tuple[str, str]]
    answer: str
    sentence: str  # the answer in a conversation; [n] cites the n-th step

    @property
    def chain(self) -> str:
        """The steps as sentences."""
        return " ".join(answer for _, answer in self.steps)


WORKED = (
    Worked(
        "On which continent is the country whose capital is Lima?",
        (
            ("Which country has the capital Lima?", "Lima is the capital of Peru."),
            ("On which continent is Peru?", "Peru is in South America."),
        ),
        "South America",
        "Peru, whose capital is Lima [1], is in South America [2].",
    ),
    Worked(
        "Which element has the larger atomic number, iron or gold?",
        (
            ("What is the atomic number of iron?", "The atomic number of iron is 26."),
            ("What is the atomic number of gold?", "The atomic number of gold is 79."),
        ),
        "gold",
        "Gold has the larger one: its atomic number is 79 [2], that of iron 26 [1].",
    ),
    Worked(
        "In which century did the author of Hamlet die?",
        (
            ("Who wrote Hamlet?", "Hamlet was written by William Shakespeare."),
            ("When did William Shakespeare die?", "William Shakespeare died in 1616."),
        ),
        "the 17th century",
        "William Shakespeare, who wrote Hamlet [1], died in the 17th century, in 1616 [2].",
    ),
)
