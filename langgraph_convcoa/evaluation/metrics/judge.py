"""A chat model as judge: marks of an answer on four criteria, and the better one of two answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from langgraph_convcoa.evaluation.records import History
from langgraph_convcoa.reasoning.messages import render
from langgraph_convcoa.reasoning.models import call_error, load_chat_model
from langgraph_convcoa.reasoning.parsing import read_json, without_thought
from langgraph_convcoa.text.citations import without_marks
from langgraph_convcoa.text.clean import flat

CRITERIA = ("correct", "complete", "faithful", "concise")
"""In this order: right and to the point; all of the reference is there; nothing is unsupported; nothing is unneeded."""
MOST = 2
"""The highest mark of a criterion; 0 is the lowest."""

_TURNS, _SAID = 3, 600
_PASSAGES, _PASSAGE = 4, 2_000


@dataclass(frozen=True)
class Marks:
    """The marks of an answer, each from 0 to 2."""

    correct: int
    complete: int
    faithful: int
    concise: int
    reason: str = ""  # a sentence of the judge

    @property
    def total(self) -> int:
        """The sum, at most 8."""
        return sum(getattr(self, name) for name in CRITERIA)


NO_MARKS = Marks(0, 0, 0, 0, "no answer")
"""The marks of an empty answer and of a question that failed."""


@dataclass(frozen=True)
class Case:
    """A question as a judge sees it: with its conversation, the right answers and the texts of the gold passages."""

    question: str
    history: History = ()
    references: tuple[str, ...] = ()
    passages: Sequence[str] = ()

    def text(self) -> str:
        r"""The case for a prompt: the last turns and the first passages, long ones cut, each thing on its own line.

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
        said = [f"User: {flat(asked)}\nAssistant: {_cut(reply, _SAID)}" for asked, reply in self.history[-_TURNS:]]
        passages = [f"- {_cut(passage, _PASSAGE)}" for passage in self.passages[:_PASSAGES]]
        right = dict.fromkeys(flat(reference) for reference in self.references if reference.strip())
        lines = [
            "[Conversation]:" if said else "[Conversation]: (none)",
            *said,
            f"[Question]: {flat(self.question)}",
            f"[Reference]: {' or '.join(right) or '(none)'}",
            "[Passages]:" if passages else "[Passages]: (none)",
            *passages,
        ]
        return "\n".join(lines)


class Judge:
    """A chat model that judges answers; it does not see citation marks."""

    def __init__(self, model: str | BaseChatModel) -> None:
        self.model = load_chat_model(model).model_copy(update={"disable_streaming": True})

    async def marks(self, case: Case, answer: str) -> Marks | None:
        """The marks of an answer: one call, and no call for an empty answer. Returns None if the reply cannot be read."""
        shown = flat(without_marks(answer))
        if not shown:
            return NO_MARKS
        return read_marks(await self._ask(render("judge_marks", case=case.text(), answer=shown)))

    async def better(self, case: Case, first: str, second: str) -> tuple[str, str] | None:
        """Which answer is better, "A" (the first), "B" or "tie", and why. The judge sees them in this order.

        One call, and no call if both are the same or one is empty. Returns None if the reply cannot be read.
        """
        one, other = (flat(without_marks(answer)) for answer in (first, second))
        if one == other:
            return "tie", "the same answer"
        if not (one and other):
            return ("A" if one else "B"), "the other is no answer"
        return read_better(await self._ask(render("judge_pair", case=case.text(), first=one, second=other)))

    async def _ask(self, prompt: str) -> str:
        try:
            reply = await self.model.ainvoke([HumanMessage(prompt.rstrip())])
        except Exception as error:
            raise call_error(error, self.model) from error
        return without_thought(reply.text)


def read_marks(reply: str) -> Marks | None:
    """The marks of a judge's reply: four whole numbers from 0 to 2 in a JSON object; None for any other reply."""
    found = _object(reply)
    marks = {name: mark for name in CRITERIA if (mark := _mark(found.get(name))) is not None}
    return Marks(**marks, reason=_reason(found)) if len(marks) == len(CRITERIA) else None


def read_better(reply: str) -> tuple[str, str] | None:
    """The better answer of a judge's reply, "A", "B" or "tie", and why; None for any other reply."""
    found = _object(reply)
    said = str(found.get("better", "")).strip().strip(".").lower().removeprefix("answer ")
    better = {"a": "A", "b": "B", "tie": "tie"}.get(said)
    return None if better is None else (better, _reason(found))


def _object(reply: str) -> Mapping[str, object]:
    found = read_json(reply)
    return {str(key).strip().lower(): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def _mark(value: object) -> int | None:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if text in ("0", "1", "2") else None


def _reason(found: Mapping[str, object]) -> str:
    return flat(str(found.get("reason") or ""))


def _cut(text: str, most: int) -> str:
    text = flat(text)
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} …"
