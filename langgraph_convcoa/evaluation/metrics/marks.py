"""Marks of answers on four criteria: what a judge is shown of a question, and how its replies are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langgraph_convcoa.evaluation.records import History
from langgraph_convcoa.reasoning.parsing import read_json

CRITERIA = ("correct", "complete", "faithful", "concise")
"""What an answer is marked on: right and to the point; all that the reference says; nothing unsupported; nothing unneeded."""
MOST = 2
"""The highest mark of a criterion; 0 is the lowest."""

SAME, EMPTY = "the same answer", "the other is no answer"
"""The reasons why a judge need not be asked which of two answers is better."""

_TURNS, _SAID = 3, 600
_PASSAGES, _PASSAGE = 4, 2_000


@dataclass(frozen=True)
class Marks:
    """The marks of an answer, each from 0 to 2."""

    correct: int
    complete: int
    faithful: int
    concise: int
    reason: str = ""  # in a sentence, as the judge gave it

    @property
    def total(self) -> int:
        """Their sum, at most 8."""
        return sum(getattr(self, name) for name in CRITERIA)


NO_MARKS = Marks(0, 0, 0, 0, "no answer")
"""The marks of an empty answer and of a question that failed."""


@dataclass(frozen=True)
class Case:
    """A question as a judge sees it: with its conversation, the right answers and the passages that hold them."""

    question: str
    history: History = ()
    references: tuple[str, ...] = ()
    passages: Sequence[str] = ()  # texts

    def text(self) -> str:
        r"""For a prompt, each thing on a line: the last turns of the conversation and the first passages, long ones cut.

        Example:
            >>> print(Case("When?", (("Who?", "Ada."),), ("1815", "in 1815"), ["Ada was born\nin 1815."]).text())
            [Conversation]:
            User: Who?
            Assistant: Ada.
            [Question]: When?
            [Reference]: 1815 or in 1815
            [Passages]:
            - Ada was born in 1815.
        """
        said = [f"User: {one_line(asked)}\nAssistant: {_cut(reply, _SAID)}" for asked, reply in self.history[-_TURNS:]]
        passages = [f"- {_cut(passage, _PASSAGE)}" for passage in self.passages[:_PASSAGES]]
        right = dict.fromkeys(one_line(reference) for reference in self.references if reference.strip())
        lines = [
            "[Conversation]:" if said else "[Conversation]: (none)",
            *said,
            f"[Question]: {one_line(self.question)}",
            f"[Reference]: {' or '.join(right) or '(none)'}",
            "[Passages]:" if passages else "[Passages]: (none)",
            *passages,
        ]
        return "\n".join(lines)


def read_marks(reply: str) -> Marks | None:
    """The marks in a judge's reply, read strictly: four whole numbers from 0 to 2, in a JSON object; None of any other reply.

    Example:
        >>> read_marks('{"reason": "no year", "correct": 2, "complete": 1, "faithful": 2, "concise": "2"}').total
        7
        >>> read_marks('{"correct": 3, "complete": 1, "faithful": 2, "concise": 2}') is None
        True
    """
    found = _object(reply)
    marks = {name: mark for name in CRITERIA if (mark := _mark(found.get(name))) is not None}
    return Marks(**marks, reason=_reason(found)) if len(marks) == len(CRITERIA) else None


def read_better(reply: str) -> tuple[str, str] | None:
    """Which of two answers is better, "A", "B" or "tie", and why; None of a reply that says none of these.

    Example:
        >>> read_better('{"reason": "B names the year", "better": "B"}')
        ('B', 'B names the year')
    """
    found = _object(reply)
    said = str(found.get("better", "")).strip().strip(".").lower().removeprefix("answer ")
    better = {"a": "A", "b": "B", "tie": "tie"}.get(said)
    return None if better is None else (better, _reason(found))


def one_line(text: str) -> str:
    """A text on one line, so that none can add a label of its own below."""
    return " ".join(text.split())


def _object(reply: str) -> Mapping[str, object]:
    found = read_json(reply)
    return {str(key).strip().lower(): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def _mark(value: object) -> int | None:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if text in ("0", "1", "2") else None


def _reason(found: Mapping[str, object]) -> str:
    return one_line(str(found.get("reason") or ""))


def _cut(text: str, most: int) -> str:
    text = one_line(text)
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} …"
