"""Judges the answers of a run: marks of each answer, and the better of two, in an order that is drawn."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.evaluation.metrics.judge import Judge
from langgraph_convcoa.evaluation.metrics.marks import EMPTY, NO_MARKS, SAME, Case, Marks
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.conversations import Drawn, references_of
from langgraph_convcoa.evaluation.runs.failures import PATIENCE, hopeless, unkept
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.run import completed
from langgraph_convcoa.retrieval.progress import Progress, track

JUDGE_BY = ("em", "marks", "pairs")
"""What a judge can be asked for: GPT-EM, marks of each answer, the better one of the first method's answer and another's."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Marked:
    """The marks of an answer; None where the judge's reply could not be read, or did not come."""

    method: str
    id: str
    conversation: str
    marks: Marks | None


@dataclass(frozen=True)
class Preference:
    """Which of the answers of two methods to a question is better."""

    id: str
    conversation: str
    first: str  # the method whose answer was shown as A
    second: str
    better: str | None  # the method; "" for a tie, None where the judge's reply could not be read, or did not come
    reason: str = ""
    asked: bool = True  # whether the judge was asked: not where the answers are the same, or one is missing


@dataclass(frozen=True)
class Judged:
    """The verdicts on a run; `wanted` says what was to be judged, of `JUDGE_BY`."""

    marks: tuple[Marked, ...] = ()
    preferences: tuple[Preference, ...] = ()
    wanted: tuple[str, ...] = field(default=())


def check_judge_by(names: Sequence[str]) -> tuple[str, ...]:
    """What a judge is asked for, each once; InputError where a name is not known.

    Example:
        >>> check_judge_by(["marks", "marks"])
        ('marks',)
    """
    if unknown := [name for name in names if name not in JUDGE_BY] or (["nothing"] if not names else []):
        raise InputError(f"a judge cannot be asked for {unknown[0]!r}: choose from {', '.join(JUDGE_BY)}")
    return tuple(dict.fromkeys(names))


def judge_run(
    folder: RunFolder,
    drawn: Drawn,
    rows: Sequence[str],
    judge: Judge,
    texts: Mapping[str, str],
    *,
    wanted: Sequence[str] = ("marks", "pairs"),
    seed: int = 0,
    concurrency: int = 8,
    max_tokens: int | None = None,
    progress: Progress = False,
) -> Judged:
    """Judge the answers that a folder holds.

    Marks are of every answer whose question has a known answer; pairs are the first row's answer and that of each other row.
    The judge sees the conversation as the data have it, the right answers, and the gold passages, whose `texts` are given by
    id. Which answer of a pair is shown first is drawn with the seed. An empty answer, or a question that failed, has marks of
    0 and loses its pairs without a call. With a judge whose replies are cached (`keep_replies`) the verdicts of an earlier
    start cost nothing; they are written to the folder's `judgements.jsonl`.

    Raises:
        ModelError: So many verdicts in a row failed for want of a key, a model or a server that no other will come.
    """
    answers: dict[str, dict[str, Answered]] = {}
    for one in folder.answers():
        if one.method in rows and one.references:
            answers.setdefault(one.id, {})[one.method] = one
    work = _Judging(folder, judge, asyncio.Semaphore(concurrency), max_tokens)
    marking: list[Awaitable[Marked]] = []
    comparing: list[Awaitable[Preference]] = []
    for conversation in drawn.conversations:
        for query in conversation.questions:
            given = answers.get(query.id, {})
            case = _case(query, texts)
            if "marks" in wanted:
                marking += [work.marked(case, given[row]) for row in rows if row in given]
            if "pairs" in wanted and rows[0] in given:
                for other in (row for row in rows[1:] if row in given):
                    pair = [given[rows[0]], given[other]]
                    random.Random(f"{seed} {query.id} {other}").shuffle(pair)  # noqa: S311 - an order, not a secret
                    comparing.append(work.compared(case, *pair))

    async def all_verdicts() -> Judged:
        with track(progress, len(marking) + len(comparing), "Judging") as advance:

            async def counted(one: Awaitable[_T]) -> _T:
                found = await one
                advance(1)
                return found

            marks = asyncio.gather(*map(counted, marking))
            preferences = asyncio.gather(*map(counted, comparing))
            try:
                return Judged(tuple(await marks), tuple(await preferences), tuple(wanted))
            except BaseException:
                for group in (marks, preferences):
                    group.cancel()
                await asyncio.gather(marks, preferences, return_exceptions=True)
                raise

    judged = completed(all_verdicts())
    verdicts = [*map(asdict, judged.marks), *map(asdict, judged.preferences)]
    folder.write_judgements(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in verdicts)
    return judged


@dataclass
class _Judging:
    folder: RunFolder
    judge: Judge
    turns: asyncio.Semaphore
    max_tokens: int | None
    hopeless: int = 0

    async def marked(self, case: Case, answer: Answered) -> Marked:
        marks = NO_MARKS if answer.error else await self._asked(lambda: self.judge.marks(case, answer.answer))
        return Marked(answer.method, answer.id, answer.conversation, marks)

    async def compared(self, case: Case, first: Answered, second: Answered) -> Preference:
        one, other = ("" if answer.error else answer.answer for answer in (first, second))
        said = await self._asked(lambda: self.judge.better(case, one, other))
        better = None if said is None else {"A": first.method, "B": second.method, "tie": ""}[said[0]]
        asked = said is None or said[1] not in (SAME, EMPTY)
        return Preference(first.id, first.conversation, first.method, second.method, better, said[1] if said else "", asked)

    async def _asked(self, ask: Callable[[], Awaitable[_T | None]]) -> _T | None:
        """A verdict; None where the judge fails, or the budget is spent."""
        async with self.turns:
            if self.max_tokens is not None and self.folder.replies.tokens >= self.max_tokens:
                return None
            try:
                found = await ask()
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


def _case(query: Query, texts: Mapping[str, str]) -> Case:
    passages = [texts[id_] for id_ in query.gold if id_ in texts]
    return Case(query.question, query.history, references_of(query), passages)
