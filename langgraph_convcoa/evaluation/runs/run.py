"""Executes a run: methods answer the questions of a data set, conversations in parallel, turns in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.evaluation.methods.base import Method
from langgraph_convcoa.evaluation.metrics.answers import answer_metrics
from langgraph_convcoa.evaluation.metrics.judge import JUDGED, Judge
from langgraph_convcoa.evaluation.records import Answered, Turn
from langgraph_convcoa.evaluation.runs.conversations import Conversation, Drawn, own_history, references_of
from langgraph_convcoa.evaluation.runs.failures import PATIENCE, Patience, failure, hopeless, unkept
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.meter import Meter
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.training.interruption import interruptions

Measure = Callable[[str, tuple[str, ...], str], Awaitable[dict[str, float]]]
"""Measures an answer, given the question, the right answers and the answer."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class RunSettings:
    """How a run is carried out; none of it but `gold_history` changes an answer."""

    concurrency: int = 8  # conversations at the same time
    gold_history: bool = False  # earlier turns have the answers of the data, in place of the method's own
    # No question is begun once the replies that were paid for, those of earlier starts of the run included, come to this many
    # tokens, input and output together; None for no limit.
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "max_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    answered: int  # answers that are written down, those of earlier starts included
    planned: int  # how many there are to be: questions times methods
    stopped: str = ""  # why it stopped before, empty where it did not


class Measures:
    """Measures answers; a judge that fails, or says neither yes nor no, leaves its measure out, and the report counts that.

    Raises ModelError when so many verdicts in a row failed for want of a key, a model or a server that no other will come.
    """

    def __init__(self, judge: Judge | None = None) -> None:
        self._judge = judge
        self._hopeless = 0

    async def __call__(self, question: str, references: tuple[str, ...], answer: str) -> dict[str, float]:
        found = answer_metrics(answer, references)
        if self._judge is None:
            return found
        try:
            verdict = await self._judge.judge(question, references, answer)
        except ModelError as error:
            if (lost := unkept(error)) is not None:
                raise lost from error
            self._hopeless = self._hopeless + 1 if hopeless(error) else 0
            if self._hopeless >= PATIENCE:
                raise ModelError(f"the judge: {error} ({self._hopeless} verdicts in a row failed so)") from error
            _log.warning("the judge did not answer: %s", error)
            return found
        self._hopeless = 0
        return found if verdict is None else {**found, JUDGED: float(verdict)}


def run_methods(
    methods: Mapping[str, Method],
    drawn: Drawn,
    folder: RunFolder,
    *,
    measure: Measure,
    models: Mapping[str, BaseChatModel] | None = None,
    remembering: Collection[str] = (),
    settings: RunSettings | None = None,
    progress: Progress = False,
    notify: Callable[[str], None] | None = None,
) -> RunEnd:
    """Ask every method every question that the folder has no answer to yet.

    A conversation is one piece of work: one method after another goes through it, turn by turn, so that a run which stops
    early has the same conversations of all methods. A question that fails is written down with its error, and the run
    continues. Ctrl-C lets the questions under way finish and then raises KeyboardInterrupt; a second one does so at once.
    `remembering` names the methods that keep more of a conversation than its history (see `registry.remembers`). Raises
    ModelError where there is nothing but failures for want of a key, a model or a server (see `Patience`).
    """
    tell = notify or (lambda _message: None)
    with interruptions() as interrupted:
        run = _Run(methods, folder, measure, models or {}, remembering, settings or RunSettings(), tell, interrupted)
        return completed(run.all(drawn, progress))


def completed(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of asynchronous work; in a notebook, whose loop runs already, it runs in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, thread_name_prefix="convcoa-run") as pool:
        return pool.submit(asyncio.run, work).result()


@dataclass
class _Run:
    methods: Mapping[str, Method]
    folder: RunFolder
    measure: Measure
    models: Mapping[str, BaseChatModel]
    remembering: Collection[str]
    settings: RunSettings
    notify: Callable[[str], None]
    interrupted: Callable[[], bool]
    stopped: str = ""
    written: int = 0
    known: dict[tuple[str, str], str | None] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)

    async def all(self, drawn: Drawn, progress: Progress) -> RunEnd:
        # The folder may hold other methods' answers, too.
        for one in self.folder.answers():
            if one.method in self.methods:
                self.known[one.method, one.id] = None if one.error else one.answer
        planned = drawn.questions * len(self.methods)
        waiting = iter(drawn.conversations)
        with track(progress, planned - len(self.known), "Asking") as advance:

            async def work() -> None:
                for conversation in waiting:
                    for method in self.methods:
                        await self.converse(method, conversation, advance)
                        if self.stopped:
                            return

            tasks = [asyncio.ensure_future(work()) for _ in range(min(self.settings.concurrency, len(drawn.conversations)))]
            try:
                await asyncio.gather(*tasks)
            except Exception:
                # What is under way is paid for: it is written down, and nothing else is begun.
                self.stopped = self.stopped or "failed"
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for one in self.patience.close(self.written):
            self.write(one)
        return RunEnd(sum(one.method in self.methods for one in self.folder.answers()), planned, self.stopped)

    async def converse(self, method: str, conversation: Conversation, advance: Callable[[int], None]) -> None:
        """One method goes through one conversation, from where it was left."""
        answers: dict[str, str | None] = {}
        before: list[Turn] = []
        for place, question in enumerate(conversation.questions):
            history = question.history
            if not self.settings.gold_history:
                history = own_history(question, conversation.questions[:place], answers)
            turn = Turn(question.id, conversation.id, question.question, history)
            if (method, question.id) in self.known:
                answers[question.id] = answer = self.known.pop((method, question.id))
                if answer is not None:
                    before.append(turn)
                continue
            if self.must_stop():
                return
            if method in self.remembering:
                await self.remind(method, before)
            begun = self.patience.failures
            answered, error = await self.ask(method, turn, question)
            answers[question.id] = None if answered.error else answered.answer
            for ready in self.patience.take(answered, error, begun):
                self.write(ready)
            advance(1)

    async def remind(self, method: str, before: list[Turn]) -> None:
        """Ask again what an earlier start of the run asked, before a conversation is resumed in the middle.

        For a method that remembers more of its conversation than the history. The replies are cached: this costs nothing.
        """
        while before and not self.settings.gold_history:
            try:
                await self.methods[method].ainvoke(before.pop(0))
            except Exception as error:
                if (lost := unkept(error)) is not None:
                    raise lost from error

    async def ask(self, method: str, turn: Turn, question: Query) -> tuple[Answered, Exception | None]:
        meter = Meter()
        # Tracing shows runs by name, so that the name is the method and not the question.
        config: RunnableConfig = {"callbacks": [meter], "run_name": method}
        references, number = references_of(question), len(question.history) + 1
        record = Answered(method, turn.id, turn.conversation, turn.question, number, references, question.gold)
        try:
            outcome = await self.methods[method].ainvoke(turn, config)
        except Exception as error:
            if (lost := unkept(error)) is not None:
                raise lost from error
            return replace(record, error=failure(error, self.models.get(method)), costs=meter.costs()), error
        record = replace(record, **vars(outcome), costs=meter.costs())
        if record.references:
            record = replace(record, metrics=await self.measure(record.question, record.references, record.answer))
        return record, None

    def write(self, answered: Answered) -> None:
        self.folder.append(answered)
        self.written += 1

    def must_stop(self) -> bool:
        if not self.stopped and self.interrupted():
            self.stopped = "interrupted"
            self.notify("stopping after the questions under way; Ctrl-C once more stops at once")
        limit, spent = self.settings.max_tokens, self.folder.replies.tokens
        if not self.stopped and limit is not None and spent >= limit:
            self.stopped = f"the budget of {limit:,} tokens is spent ({spent:,})"
        return bool(self.stopped)
