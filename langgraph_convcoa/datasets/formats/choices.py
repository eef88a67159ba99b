"""Multiple-choice questions in the form of Pan et al. 2024a: "What should I do? (A) drink more (B) drink coffee"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from langgraph_convcoa.errors import InputError


@dataclass(frozen=True)
class Choice:
    """A question with its choices; `references` are the right ones, bare and with their letters."""

    question: str
    answer: str
    references: tuple[str, ...]


def multiple_choice(question: str, choices: Sequence[str], right: Sequence[int], where: str) -> Choice:
    """The question with its choices after it.

    Args:
        question: As it was put.
        choices: The answers to choose from.
        right: Places of the right ones, from 0; none where they are not known.
        where: The file and the line, for messages.

    Raises:
        InputError: There are more choices than letters, or a right one is none of them.

    Example:
        >>> multiple_choice("Which is blue?", ["grass", "the sky"], [1], "file, line 1")
        Choice(question='Which is blue? (A) grass (B) the sky', answer='the sky', references=('the sky', '(B) the sky'))
    """
    if len(choices) > len(ascii_uppercase) or not all(0 <= place < len(choices) for place in right):
        raise InputError(
            f"{where}: {len(choices)} choices, of which those at {[place + 1 for place in right]} cannot be right."
        )
    lettered = [f"({letter}) {choice.strip()}" for letter, choice in zip(ascii_uppercase, choices, strict=False)]
    bare = [choices[place].strip() for place in right]
    references = (*bare, *(lettered[place] for place in right))
    return Choice(" ".join([question.strip(), *lettered]), bare[0] if bare else "", tuple(dict.fromkeys(references)))
