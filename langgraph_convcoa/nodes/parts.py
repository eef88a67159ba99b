"""What all nodes use: the parts of their graph, events, the facts in a trace, and the evidence of a turn."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from cachetools import TTLCache
from langchain_core.documents import Document
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph.message import push_message
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command
from langsmith.run_helpers import get_current_run_tree

from langgraph_convcoa.actions.runner import ActionRunner
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.state import ActionState, ConvCoAState, Finding, pairs_of, question_of
from langgraph_convcoa.verification.answers import Checker, SentenceGate
from langgraph_convcoa.verification.verifier import Verifier

Update = dict[str, Any]  # The part of the state that a node changes.
TurnRuntime = Runtime[ConvCoAContext]  # LangGraph's runtime: the context of the run and its store.
LOOKED = -1  # The index of the findings for the question itself.
_CHECKERS, _CHECKER_SECONDS = 32, 120.0
_LONGEST_FACT = 300


@dataclass(frozen=True)
class GraphParts:
    """The parts that the nodes of one graph share.

    Attributes:
        actions: Runs the actions.
        reasoner: Gives the reasoner of a node, for the model that the settings name. Building a model may take a while.
        without_model: Answers with quotes if the model is down.
        verifier: Judges each sentence.
        memory: The conversation memory.
        defaults: Settings for runs that give no settings.
    """

    actions: ActionRunner
    reasoner: Callable[[str, ConvCoAContext], Reasoner]
    without_model: Reasoner
    verifier: Verifier
    memory: ConversationMemory
    defaults: ConvCoAContext
    _checkers: TTLCache[Any, Checker] = field(default_factory=lambda: TTLCache(_CHECKERS, _CHECKER_SECONDS), repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def settings(self, runtime: TurnRuntime | None = None) -> ConvCoAContext:
        """The settings of the present run. Nodes pass their runtime; routers have none."""
        # There is no run while a person edits the state between two nodes.
        runtime = runtime or get_runtime(ConvCoAContext)
        return (runtime.context if runtime else None) or self.defaults

    def checker(self, state: ConvCoAState, settings: ConvCoAContext) -> Checker:
        """The checker of this turn's answer. The nodes of a turn share it, so that no sentence is judged twice."""
        evidence, history = merge_findings(state["findings"]).documents, pairs_of(state)
        texts = tuple((str(document.id), document.page_content) for document in evidence)
        key = (texts, tuple(history), question_of(state), settings.threshold)
        with self._lock:
            new = Checker(evidence, history, self.verifier, question_of(state), settings.threshold)
            return self._checkers.setdefault(key, new)

    def gate(
        self, state: ConvCoAState, settings: ConvCoAContext, config: RunnableConfig, reviewed: set[str]
    ) -> SentenceGate | None:
        """The gate that streams the answer; None without a stream of messages, or if a person approves a `reviewed` node."""
        if not is_followed(config) or reviewed & {*state["approve"]}:
            return None
        return SentenceGate(self.checker(state, settings), show, state["reply"]["message_id"])


def annotate(given: Mapping[str, Any], update: Any) -> Any:
    """Add the facts of a node, such as `convcoa.1.status`, to the metadata of its trace; returns the update.

    If the client of the trace hides inputs, the sub-questions are left out.
    """
    changed = update.update if isinstance(update, Command) else update
    run = get_current_run_tree()
    if run is None or not isinstance(changed, Mapping):
        return update
    facts: dict[str, Any] = {}
    chain = changed.get("items") or changed.get("chain") or (changed.get("plan") or {}).get("nodes") or ()
    for number, item in enumerate(chain, start=1):
        for name in ("sub_question", "action", "status", "score", "evidence"):
            if name in item:
                facts[f"convcoa.{number}.{name}"] = item[name]
    findings = changed.get("findings")
    # `remember` and `recall` write an `Overwrite`, which is no list.
    if not chain and isinstance(findings, list) and findings:
        facts["convcoa.sub_question"] = given.get("sub_question") or given.get("asked") or ""
        facts["convcoa.action"] = ", ".join(dict.fromkeys(one["action"] for one in findings))
        facts["convcoa.status"] = "found" if any(not one["error"] for one in findings) else "failed"
        facts["convcoa.evidence"] = [str(document.id)[:_LONGEST_FACT] for one in findings for document in one["documents"]]
    hidden = getattr(run.client, "_hide_inputs", False)
    short = {name: fact[:_LONGEST_FACT] if isinstance(fact, str) else fact for name, fact in facts.items()}
    run.add_metadata({name: fact for name, fact in short.items() if not (hidden and name.endswith("sub_question"))})
    return update


def is_followed(config: RunnableConfig) -> bool:
    """Whether somebody follows the stream of messages of a run."""
    callbacks: Any = config.get("callbacks")
    return any(isinstance(handler, StreamMessagesHandler) for handler in getattr(callbacks, "handlers", callbacks) or ())


def emit(event: dict[str, Any]) -> None:
    """Emit a progress event (`stream_mode="custom"`)."""
    get_stream_writer()(event)


def emit_status(index: int, step: ChainItem | ActionState, **told: str) -> None:
    """Emit the progress of one sub-question, with its guess, and with its answer and evidence once it is settled."""
    shown = ("sub_question", "action", "guess_answer", "answer", "status", "score", "reason", "evidence", "paths")
    known = {name: value for name, value in step.items() if name in shown}
    emit({"type": "sub_question", "index": index, "score": 0.0, "reason": "", **known, **told})


def show(text: str, message_id: str) -> None:
    """Put a piece of the answer into the stream of messages."""
    push_message(cast("Any", AIMessageChunk(content=text, id=message_id)), state_key=None)


@dataclass
class Found:
    """Everything that was found for one sub-question, the deeper look first. `action` is the action asked last."""

    documents: list[Document] = field(default_factory=list)
    error: str = ""
    action: str = ""


class TurnEvidence(NamedTuple):
    """The evidence of a turn.

    `documents[n - 1]` is cited as [n] from the first prompt to the final answer. `found` has the documents of each
    sub-question by its index, and of the question itself under `LOOKED`.
    """

    documents: list[Document]
    found: Mapping[int, Found]


def finding(
    index: int,
    action: str,
    documents: Sequence[Document] = (),
    error: str = "",
    *,
    depth: int = 1,
    seconds: float = 0.0,
    repairable: bool = False,
) -> Finding:
    """Make the finding of one action for one sub-question."""
    return Finding(
        index=index, action=action, documents=list(documents), error=error, depth=depth, seconds=seconds, repairable=repairable
    )


def merge_findings(findings: Sequence[Finding]) -> TurnEvidence:
    """Number the documents of a turn. The order of arrival does not matter, and a number stays when more is found."""
    texts: dict[str, str] = {}
    ids: dict[tuple[str, str], str] = {}
    numbered: dict[str, Document] = {}
    named: list[tuple[Finding, list[Document]]] = []
    for one in sorted(findings, key=lambda f: (f["depth"], f["index"])):
        own = {str(own.id): own for own in (_with_own_id(given, texts, ids) for given in one["documents"])}
        named.append((one, list(own.values())))
        for id_, document in own.items():
            numbered.setdefault(id_, document)
    found: defaultdict[int, Found] = defaultdict(Found)
    came_back = {one["index"] for one in findings if not one["error"]}
    for one, documents in sorted(named, key=lambda pair: (pair[0]["index"], -pair[0]["depth"])):
        here = found[one["index"]]
        known = {document.id for document in here.documents}
        here.documents += [document for document in documents if document.id not in known]
        here.action = here.action or one["action"]
        # An unusable input is no failure if another look-up of the sub-question succeeded.
        if not (one["repairable"] and one["index"] in came_back):
            here.error = here.error or one["error"]
    return TurnEvidence(list(numbered.values()), found)


def _with_own_id(document: Document, texts: dict[str, str], ids: dict[tuple[str, str], str]) -> Document:
    """The document, with the id of an equal document, or a new id if another text has its id."""
    title = str(document.metadata.get("title") or "")
    id_ = wanted = ids.setdefault((title, document.page_content), str(document.id))
    number = 1
    while texts.setdefault(id_, document.page_content) != document.page_content:
        number += 1
        id_ = f"{wanted}~{number}"
    return document if id_ == document.id else document.model_copy(update={"id": id_})
