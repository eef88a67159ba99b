"""A chat model as judge: marks of an answer on four criteria, the better of two answers, and the verdicts on a whole run."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.records import Answered, History, Questions, references_of
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.run import PATIENCE, RunSettings, completed, hopeless, unkept
from langgraph_convcoa.reasoning.chat_model import render
from langgraph_convcoa.reasoning.models import call_error, load_chat_model
from langgraph_convcoa.reasoning.parsing import read_json, without_thought
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.clean import flat, shortened

CRITERIA = ("correct", "complete", "faithful", "concise")
"""Demands on an answer, in this order: right and to the point; all of the reference; no unsupported claim; no padding."""
MOST = 2  # The highest mark of a criterion; 0 is the lowest.
_TURNS, _SAID = 3, 600
_PASSAGES, _PASSAGE = 4, 2_000
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


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


NO_MARKS = Marks(0, 0, 0, 0, "no answer")  # The marks of an empty answer and of a question that failed.


@dataclass(frozen=True)
class Case:
    """A question as a judge sees it: with its conversation, the right answers and the texts of the gold passages."""

    question: str
    history: History = ()
    references: tuple[str, ...] = ()
    passages: Sequence[str] = ()

    def text(self) -> str:
        r"""The case for a prompt: the last turns and the first passages. Long texts are cut, and each is on its own line.

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
        said = [f"User: {flat(asked)}\nAssistant: {shortened(reply, _SAID)}" for asked, reply in self.history[-_TURNS:]]
        passages = [f"- {shortened(passage, _PASSAGE)}" for passage in self.passages[:_PASSAGES]]
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

        One call, and no call if both answers are equal or one answer is empty. Returns None if the reply cannot be read.
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
    marks = {name: int(mark) for name in CRITERIA if (mark := str(found.get(name)).strip()) in ("0", "1", "2")}
    return Marks(**marks, reason=found["reason"]) if len(marks) == len(CRITERIA) else None


def read_better(reply: str) -> tuple[str, str] | None:
    """The better answer of a judge's reply, "A", "B" or "tie", and why; None for any other reply."""
    found = _object(reply)
    said = str(found.get("better", "")).strip().strip(".").lower().removeprefix("answer ")
    better = {"a": "A", "b": "B", "tie": "tie"}.get(said)
    return None if better is None else (better, found["reason"])


def _object(reply: str) -> dict[str, Any]:
    """The JSON object of a reply with names in lower case, or an empty one. It always has a `reason`, which may be ""."""
    value = read_json(reply)
    found = {str(key).strip().lower(): entry for key, entry in value.items()} if isinstance(value, Mapping) else {}
    return found | {"reason": flat(str(found.get("reason") or ""))}


@dataclass(frozen=True)
class Marked:
    """An answer with its marks, which are None if there is no readable reply."""

    method: str
    id: str
    conversation: str
    marks: Marks | None


@dataclass(frozen=True)
class Preference:
    """The better of two methods' answers to a question."""

    id: str
    conversation: str
    first: str  # the method whose answer was shown as A
    second: str
    better: str | None  # the better method; "" for a tie, None if there is no readable reply
    reason: str = ""


@dataclass(frozen=True)
class Verdicts:
    """A judge's verdicts on a run."""

    marks: tuple[Marked, ...] = ()
    preferences: tuple[Preference, ...] = ()


def judge_run(
    folder: RunFolder,
    questions: Questions,
    methods: Sequence[str],
    judge: Judge,
    texts: Mapping[str, str],
    *,
    seed: int = 0,
    settings: RunSettings | None = None,
    progress: Progress = False,
) -> Verdicts:
    """Judge the answers of a folder.

    Every answer to a question with a known answer gets marks. The first method's answer is compared with the answer of each
    other method. The judge sees the conversation of the data, the right answers, and the gold passages (`texts` by id). The
    order of two answers is drawn with the seed. An empty answer has marks of 0 and loses without a call. The verdicts are
    written to `judgements.jsonl`. Raises ModelError if `PATIENCE` verdicts in a row failed for lack of a key, a model or a
    server.
    """
    chosen = settings or RunSettings()
    answers: dict[str, dict[str, Answered]] = {}
    for one in folder.answers(methods):
        if one.references:
            answers.setdefault(one.id, {})[one.method] = one
    work = _Judging(folder, judge, asyncio.Semaphore(chosen.concurrency), chosen.max_tokens)
    marking: list[Awaitable[Marked]] = []
    comparing: list[Awaitable[Preference]] = []
    for query in (query for conversation in questions.conversations for query in conversation.questions):
        given = answers.get(query.id, {})
        passages = [texts[id_] for id_ in query.gold if id_ in texts]
        case = Case(query.question, query.history, references_of(query), passages)
        marking += [work.marked(case, given[method]) for method in methods if method in given]
        for other in (method for method in methods[1:] if method in given and methods[0] in given):
            pair = [given[methods[0]], given[other]]
            random.Random(f"{seed} {query.id} {other}").shuffle(pair)  # noqa: S311 - an order, not a secret
            comparing.append(work.compared(case, *pair))

    async def all_verdicts() -> list[Any]:
        with track(progress, len(marking) + len(comparing), "Judging") as advance:

            async def counted(one: Awaitable[_T]) -> _T:
                found = await one
                advance(1)
                return found

            return await asyncio.gather(*(counted(one) for one in (*marking, *comparing)))

    found = completed(all_verdicts())
    folder.write_judgements(json.dumps(asdict(one), ensure_ascii=False, separators=(",", ":")) for one in found)
    return Verdicts(tuple(found[: len(marking)]), tuple(found[len(marking) :]))


@dataclass
class _Judging:
    folder: RunFolder
    judge: Judge
    turns: asyncio.Semaphore
    max_tokens: int | None
    hopeless: int = 0

    async def marked(self, case: Case, answer: Answered) -> Marked:
        marks = NO_MARKS if answer.error else await self._asked(self.judge.marks, case, answer.answer)
        return Marked(answer.method, answer.id, answer.conversation, marks)

    async def compared(self, case: Case, first: Answered, second: Answered) -> Preference:
        one, other = ("" if answer.error else answer.answer for answer in (first, second))
        said = await self._asked(self.judge.better, case, one, other)
        better = None if said is None else {"A": first.method, "B": second.method, "tie": ""}[said[0]]
        return Preference(first.id, first.conversation, first.method, second.method, better, said[1] if said else "")

    async def _asked(self, ask: Callable[..., Awaitable[_T | None]], *given: object) -> _T | None:
        """A verdict; None if the judge fails or the budget is spent."""
        async with self.turns:
            if self.max_tokens is not None and self.folder.replies.tokens >= self.max_tokens:
                return None
            try:
                found = await ask(*given)
            except ModelError as error:
                if (lost := unkept(error)) is not None:
                    raise lost from error
                self.hopeless = self.hopeless + 1 if hopeless(error) else 0
                if self.hopeless >= PATIENCE:
                    raise ModelError(f"the judge: {error} ({self.hopeless} verdicts in a row failed so)") from error
                _log.warning("the judge did not answer: %s", error)
                return None
        self.hopeless = 0
        return found
