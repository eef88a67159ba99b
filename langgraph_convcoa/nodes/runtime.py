"""The shared part of a graph's nodes: actions, reasoner, memory, settings, and one way to run a node plain and async."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from cachetools import TTLCache
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.runtime import get_runtime
from langgraph.types import Send

from langgraph_convcoa.actions.runner import ActionRunner
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.memory.vectors import QueryEncoder
from langgraph_convcoa.nodes.drafts import Checker
from langgraph_convcoa.nodes.tracing import annotate
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.state import ActionState, ConvCoAState, Finding, PlannedNode, pairs_of
from langgraph_convcoa.usage import Attempts, NodeUsage
from langgraph_convcoa.verification.verifier import Verifier

Update = dict[str, Any]
"""The part of the state that a node changes."""


_CHECKERS, _CHECKER_SECONDS = 2_000_000, 120.0
"""Characters that the kept checkers verify against, from node to node of a turn, and how long they are kept."""
_OF_A_CHECKER = 50_000
_OF_A_STEP = frozenset({"guess_answer", "answer", "evidence", "paths"})
"""What a progress event tells of a sub-question, where it is known."""
LOOKED = -1
"""The index of what was found for the question itself."""


class Call(NamedTuple):
    """A call that has a plain and an async form; a node that yields one is resumed with its result, or its exception."""

    plain: Callable[..., Any]
    awaited: Callable[..., Any]
    arguments: tuple[Any, ...]


Steps = Generator[Call, Any, Update]
"""A node that calls a model or an action: it yields the calls and returns its update."""
Counting = Callable[[str, RunnableConfig], AbstractContextManager[tuple[RunnableConfig, dict[str, NodeUsage]]]]


def _characters(checker: Checker) -> int:
    texts = [*(document.page_content for document in checker.evidence), *(answer for _, answer in checker.history)]
    return _OF_A_CHECKER + sum(map(len, texts))


class TurnRuntime:
    """Everything that the nodes of one graph share.

    `reasoner_for` gives a node's reasoner for a model named at run time, or for None the graph's own; `defaults` are the
    settings of a run that gives none; `k` is how many pieces of evidence a sub-question gets where no setting says so.
    """

    def __init__(
        self,
        actions: ActionRunner,
        reasoner_for: Callable[[str, str | None], Reasoner],
        defaults: ConvCoAContext,
        k: int,
        verifier: Verifier,
    ) -> None:
        self.actions = actions
        self.attempts = Attempts()
        self.memory = ConversationMemory(self._encoder)
        self.k = k
        self.verifier = verifier
        self._reasoner_for = reasoner_for
        self._defaults = defaults
        self._lock = threading.Lock()
        self._checkers: TTLCache[Any, Checker] = TTLCache(_CHECKERS, _CHECKER_SECONDS, getsizeof=_characters)

    def settings(self) -> ConvCoAContext:
        """The settings of the present run; the graph's own where a person edits the state between two nodes."""
        runtime = get_runtime(ConvCoAContext)
        return (runtime.context if runtime else None) or self._defaults

    def reasoner(self, node: str) -> Reasoner:
        """The reasoner of a node in this run; a model that a run names may take a while to build."""
        return self._reasoner_for(node, self.settings().model_of(node))

    def plans_over_evidence(self) -> bool:
        """Whether the reasoner of this run reads evidence before it plans."""
        return bool(getattr(self.reasoner("plan"), "plans_over_evidence", True))

    def node(self, name: str, work: Callable[[TurnRuntime, ConvCoAState, RunnableConfig], Steps | Update]) -> Any:
        """The node of the graph for a function of this package; the model calls of one that yields them are counted."""
        if not inspect.isgeneratorfunction(work):
            return partial(_traced, work, self)
        return Node(name, partial(work, self), self.attempts.counting)

    def send(self, state: ConvCoAState, index: int, step: PlannedNode | ChainItem) -> Send:
        """A branch to an action that looks one sub-question up."""
        with_history = self.settings().of_action(step["action"]).get("use_history")
        if with_history is None:
            with_history = not state["plan"]["self_contained"]
        payload: ActionState = {
            "turn": state["asked_message_id"],
            "sent": time.time(),
            "index": index,
            "depth": state["depth"] + 1,
            "action": step["action"],
            "question": state["asked"],
            "sub_question": step["sub_question"],
            "guess_answer": step["guess_answer"],
            "action_input": step["action_input"],
            "history": state["history"] if with_history else [],
        }
        return Send(step["action"], payload)

    def checker(self, state: ConvCoAState, findings: Sequence[Finding] | None = None) -> Checker:
        """What verifies the sentences of this turn's answer."""
        settings = self.settings()
        evidence = evidence_of(state["findings"] if findings is None else findings).documents
        history, threshold = pairs_of(state), settings.threshold
        texts = tuple((str(document.id), document.page_content) for document in evidence)
        confirmed = frozenset(state["confirmed"])
        key = (texts, tuple(history), state["asked"], threshold, confirmed)
        with self._lock:
            known = self._checkers.get(key)
        checker = known or Checker(evidence, history, self.verifier, state["asked"], threshold, confirmed)
        # One that is larger than all of the cache is not kept.
        with self._lock, suppress(ValueError):
            self._checkers[key] = checker
        return checker

    def _encoder(self) -> QueryEncoder | None:
        """The encoder of the first action whose retriever has one."""
        encoders = (action.encoder for action in self.actions.actions.values())
        return next((encoder for encoder in encoders if hasattr(encoder, "encode_queries")), None)


class Node(Runnable[Any, Update]):
    """A node in both forms from one generator, whose own steps the async form runs in a thread: they may take a while.

    `work` takes the state and the configuration for its calls; `counting` counts the model calls made under that
    configuration, and the update then carries their costs.
    """

    def __init__(self, name: str, work: Callable[[Any, RunnableConfig], Steps], counting: Counting | None = None) -> None:
        self.name = name
        self._work = work
        self._count = counting or (lambda _, config: nullcontext((config, {})))

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        with self._count(str(self.name), config or {}) as (inner, costs):
            steps = self._work(input, inner)
            step = _advance(partial(next, steps))
            while isinstance(step, Call):
                try:
                    resume = partial(steps.send, step.plain(*step.arguments))
                except Exception as error:  # noqa: BLE001 - the node decides
                    resume = partial(steps.throw, error)
                step = _advance(resume)
        return _counted(input, step, costs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        with self._count(str(self.name), config or {}) as (inner, costs):
            steps = self._work(input, inner)
            step = await asyncio.to_thread(_advance, partial(next, steps))
            while isinstance(step, Call):
                try:
                    resume = partial(steps.send, await step.awaited(*step.arguments))
                except Exception as error:  # noqa: BLE001 - as above
                    resume = partial(steps.throw, error)
                step = await asyncio.to_thread(_advance, resume)
        return _counted(input, step, costs)


def _traced(work: Callable[..., Any], turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Update:
    update: Update = work(turn, state, config)
    annotate(state, update)
    return update


def _counted(given: Any, update: Update, costs: Mapping[str, NodeUsage]) -> Update:
    """The update with the costs of its model calls; a trace is told of it."""
    annotate(given, update)
    return {**update, "costs": {**update.get("costs", {}), **costs}} if costs else update


def _advance(resume: Callable[[], Call]) -> Call | Update:
    try:
        return resume()
    except StopIteration as done:
        update: Update = done.value
        return update


def emit(event: dict[str, Any]) -> None:
    """A progress event for who streams `custom`."""
    get_runtime(ConvCoAContext).stream_writer(event)


def emit_progress(
    index: int, step: PlannedNode | ChainItem | ActionState, status: str, score: float = 0.0, reason: str = ""
) -> None:
    """The progress event of one sub-question: with its guess, and once it is settled with its answer and its evidence."""
    about = {"type": "sub_question", "index": index, "sub_question": step["sub_question"], "action": step["action"]}
    known = {name: value for name, value in step.items() if name in _OF_A_STEP}
    emit({**about, "status": status, "score": score, "reason": reason, **known})


@dataclass
class Found:
    """Everything found for one sub-question: the deeper look first, no document twice."""

    documents: list[Document] = field(default_factory=list)
    error: str = ""
    action: str = ""
    """The one that was asked last."""


@dataclass(frozen=True)
class Evidence:
    """The evidence of a turn: `documents[n - 1]` is cited as [n] from the first prompt to the final answer.

    `found` is the same by sub-question, `LOOKED` for the question itself.
    """

    documents: list[Document]
    found: Mapping[int, Found]

    @property
    def looked(self) -> list[Document]:
        """What was found for the question as it stands."""
        return self.found[LOOKED].documents


def evidence_of(findings: Sequence[Finding]) -> Evidence:
    """Merge findings, whatever order they arrived in; what was found first keeps its number when more is found.

    An id means one text in the whole turn.
    """
    texts: dict[str, str] = {}
    numbered: dict[str, Document] = {}
    named: list[tuple[Finding, list[Document]]] = []
    for finding in sorted(findings, key=lambda f: (f["depth"], f["index"])):
        own = [_with_own_id(document, texts) for document in finding["documents"]]
        named.append((finding, own))
        for document in own:
            numbered.setdefault(str(document.id), document)
    found: defaultdict[int, Found] = defaultdict(Found)
    came_back = {finding["index"] for finding in findings if not finding["error"]}
    for finding, own in sorted(named, key=lambda pair: (pair[0]["index"], -pair[0]["depth"])):
        here = found[finding["index"]]
        known = {document.id for document in here.documents}
        here.documents += [document for document in own if document.id not in known]
        here.action = here.action or finding.get("action", "")
        # What only lacked its input is no failure where another look came back.
        if not (finding.get("repairable") and finding["index"] in came_back):
            here.error = here.error or finding["error"]
    return Evidence(list(numbered.values()), found)


def _with_own_id(document: Document, texts: dict[str, str]) -> Document:
    """Two actions may give different texts one id; the second gets another."""
    id_ = wanted = str(document.id)
    number = 1
    while texts.setdefault(id_, document.page_content) != document.page_content:
        number += 1
        id_ = f"{wanted}~{number}"
    return document if id_ == document.id else document.model_copy(update={"id": id_})
