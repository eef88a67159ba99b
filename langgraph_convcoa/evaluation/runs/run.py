"""Executes a run: conversations in parallel, turns in order. Counts the costs of questions, and ends a hopeless run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import ConvCoAError, ModelError, check_least
from langgraph_convcoa.evaluation.methods.prompting import Answerer
from langgraph_convcoa.evaluation.metrics import answer_metrics
from langgraph_convcoa.evaluation.records import Answered, Conversation, Costs, Questions, Turn, own_history, references_of
from langgraph_convcoa.evaluation.runs.folder import KEPT, ReplyCacheError, RunFolder
from langgraph_convcoa.reasoning.models import status_code
from langgraph_convcoa.reasoning.usage import UsageCounter
from langgraph_convcoa.retrieval.progress import Progress, interruptions, track

PATIENCE = 10  # The run ends after this many failures in a row that are `hopeless`.
# Status codes of hopeless failures. 429 is a spent quota or a rate limit that outlasts the retries: the run can resume later.
_HOPELESS = (401, 402, 403, 404, 429)
_T = TypeVar("_T")


@dataclass(frozen=True)
class RunSettings:
    """How a run is carried out; only `gold_history` changes an answer."""

    concurrency: int = 8  # conversations at the same time
    gold_history: bool = False  # earlier turns have the data's answers instead of the method's own
    # Budget of tokens for all replies, also those of earlier starts. When it is spent, no question is started. None: no limit.
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        check_least(self, concurrency=1, max_tokens=1)


def run_methods(
    methods: Mapping[str, Answerer],
    questions: Questions,
    folder: RunFolder,
    *,
    remembering: Collection[str] = (),
    settings: RunSettings | None = None,
    progress: Progress = False,
    notify: Callable[[str], None] = lambda _message: None,
) -> str:
    """Ask each method all questions that have no answer of the method in the folder.

    The methods go through a conversation one after another, turn by turn, so a run that stops early has the same
    conversations for all methods. A question that fails is written down with its error. A hopeless failure (a wrong key, a
    spent quota, no server) would meet the next question too. It is not written down, and the conversation waits for a restart.
    Ctrl-C lets the questions under way finish; a second Ctrl-C stops at once.

    `remembering` names the methods that keep more of a conversation than its history. Returns why the run stopped early; empty
    if it did not. Raises ModelError after `PATIENCE` hopeless failures in a row, or if there were only hopeless failures.
    """
    with interruptions() as interrupted:
        run = _Run(methods, folder, remembering, settings or RunSettings(), notify, interrupted)
        return completed(run.all(questions, progress))


def completed(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine and return its result. In a notebook, which already runs an event loop, use a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, thread_name_prefix="convcoa-run") as pool:
        return pool.submit(asyncio.run, work).result()


@dataclass
class _Run:
    methods: Mapping[str, Answerer]
    folder: RunFolder
    remembering: Collection[str]
    settings: RunSettings
    notify: Callable[[str], None]
    interrupted: Callable[[], bool]
    stopped: str = ""
    known: dict[tuple[str, str], str | None] = field(default_factory=dict)
    in_a_row: int = 0  # hopeless failures since the last answer
    hopeless: str = ""  # text of the last hopeless failure
    written: int = 0

    async def all(self, questions: Questions, progress: Progress) -> str:
        for one in self.folder.answers(self.methods):
            self.known[one.method, one.id] = None if one.error else one.answer
        waiting = iter(questions.conversations)
        with track(progress, len(questions) * len(self.methods) - len(self.known), "Asking") as advance:
            failed: list[Exception] = []

            async def work() -> None:
                try:
                    for conversation in waiting:
                        for method in self.methods:
                            await self.converse(method, conversation, advance)
                            if self.stopped:
                                return
                except Exception as error:  # noqa: BLE001 - questions under way are paid for, so they are still written down
                    failed.append(error)
                    self.stopped = self.stopped or "failed"

            await asyncio.gather(*(work() for _ in range(self.settings.concurrency)))
        if failed:
            raise failed[0]
        if self.hopeless and not self.written:
            raise ModelError(self.hopeless)
        return self.stopped or self.hopeless

    async def converse(self, method: str, conversation: Conversation, advance: Callable[[int], None]) -> None:
        """Ask one method the open questions of one conversation."""
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
            if method in self.remembering and not self.settings.gold_history:
                await self.remind(method, before)
            answered = await self.ask(method, turn, question)
            if answered is None:
                return
            answers[question.id] = None if answered.error else answered.answer
            self.folder.append(answered)
            self.written += 1
            advance(1)

    async def remind(self, method: str, before: list[Turn]) -> None:
        """Ask the earlier questions of a resumed conversation again; their replies are cached, so this costs nothing."""
        while before:
            try:
                await self.methods[method].ainvoke(before.pop(0))
            except Exception as error:
                if (lost := unkept(error)) is not None:
                    raise lost from error

    async def ask(self, method: str, turn: Turn, question: Query) -> Answered | None:
        """Ask a question. Returns the answer or the error, or None if the next question would fail too."""
        meter = Meter()
        # Traces show the method as the name of the run.
        config: RunnableConfig = {"callbacks": [meter], "run_name": method}
        references, number = references_of(question), len(question.history) + 1
        record = Answered(method, turn.id, turn.conversation, turn.question, number, references, question.gold)
        try:
            outcome = await self.methods[method].ainvoke(turn, config)
        except Exception as error:
            if (lost := unkept(error)) is not None:
                raise lost from error
            text = failure(error)
            if not hopeless(error):
                return replace(record, error=text, costs=meter.costs())
            self.in_a_row, self.hopeless = self.in_a_row + 1, text
            if self.in_a_row >= PATIENCE:
                raise ModelError(f"{text} ({self.in_a_row} questions in a row failed so; the run stopped)") from error
            return None
        self.in_a_row = 0
        return replace(record, **vars(outcome), costs=meter.costs(), metrics=answer_metrics(outcome.answer, record.references))

    def must_stop(self) -> bool:
        if not self.stopped and self.interrupted():
            self.stopped = "interrupted"
            self.notify("stopping after the questions under way; Ctrl-C once more stops at once")
        limit, spent = self.settings.max_tokens, self.folder.replies.tokens
        if not self.stopped and limit is not None and spent >= limit:
            self.stopped = f"the budget of {limit:,} tokens is spent ({spent:,})"
        return bool(self.stopped)


class Meter(UsageCounter):
    """A callback that counts calls, tokens and searches, and the time since it was made.

    A cached reply counts with the time that it took at first, so costs do not depend on earlier runs. Failed requests count
    with an estimate of their input. If a retriever asks another retriever, only the outer one counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._start = time.perf_counter()
        self._searches: set[UUID] = set()
        self._kept = 0.0
        self.retrievals = 0

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        super().on_llm_end(response, run_id=run_id, **kwargs)
        generation = response.generations[0][0] if response.generations and response.generations[0] else None
        if isinstance(generation, ChatGeneration) and generation.generation_info:
            with self._lock:
                self._kept += generation.generation_info.get(KEPT, 0.0)

    def on_retriever_start(
        self, serialized: dict[str, Any], query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        with self._lock:
            if parent_run_id not in self._searches:
                self.retrievals += 1
            self._searches.add(run_id)

    def costs(self) -> Costs:
        """The costs so far."""
        with self._lock:
            seconds = time.perf_counter() - self._start + self._kept
            return Costs(self.llm_calls, self.input_tokens, self.output_tokens, self.retrievals, round(seconds, 6))


def failure(error: Exception) -> str:
    """Why a question has no answer, in one line. A provider's text is left out, since it may quote a key."""
    if isinstance(error, ConvCoAError):
        return " ".join(str(error).split())
    return f"the method failed ({status_code(error) or type(error).__name__})"


def hopeless(error: Exception) -> bool:
    """Whether the next question would fail too: the key, the model's name or the address is wrong, or a quota is spent."""
    for cause in _causes(error):
        if status_code(cause) in _HOPELESS:
            return True
        name = type(cause).__name__.lower()
        if isinstance(cause, ConnectionError) or "connect" in name:
            return "timeout" not in name
    return False


def unkept(error: Exception) -> ReplyCacheError | None:
    """The cache error that caused this exception, if any."""
    return next((cause for cause in _causes(error) if isinstance(cause, ReplyCacheError)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
