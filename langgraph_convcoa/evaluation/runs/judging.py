"""Judges the answers of a run in one pass: marks of each answer, and the better of two answers in random order."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.metrics.judge import NO_MARKS, Case, Judge, Marks
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.conversations import Questions, references_of
from langgraph_convcoa.evaluation.runs.failures import PATIENCE, hopeless, unkept
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.run import RunSettings, completed
from langgraph_convcoa.retrieval.progress import Progress, track

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


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

    async def all_verdicts() -> Verdicts:
        with track(progress, len(marking) + len(comparing), "Judging") as advance:

            async def counted(one: Awaitable[_T]) -> _T:
                found = await one
                advance(1)
                return found

            tasks = [asyncio.ensure_future(counted(one)) for one in (*marking, *comparing)]
            try:
                found: list[Any] = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            return Verdicts(tuple(found[: len(marking)]), tuple(found[len(marking) :]))

    verdicts = completed(all_verdicts())
    lines = [*map(asdict, verdicts.marks), *map(asdict, verdicts.preferences)]
    folder.write_judgements(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in lines)
    return verdicts


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
