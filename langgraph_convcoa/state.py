"""What a node is given: the state of the turn, its evidence, and the parts of the graph.

The state has plain types only, so that every checkpoint reads back unchanged.
"""

from __future__ import annotations

import operator
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple, NotRequired

from cachetools import TTLCache
from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime, get_runtime
from pydantic import Field
from typing_extensions import TypedDict  # pydantic, which makes Studio's schemas, needs this TypedDict before Python 3.12

from langgraph_convcoa.actions.runner import ActionRunner
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.chain import PlannedNode as PlannedNode
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.memory.evidence import RecalledAnswer, RememberedEvidence
from langgraph_convcoa.memory.knowledge_set import Citation, KnowledgeSetJSON, Round
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.reasoning.streaming import SentenceGate, is_followed, show
from langgraph_convcoa.reasoning.usage import NodeUsage, Usage, add_costs
from langgraph_convcoa.verification.answer_check import Checker
from langgraph_convcoa.verification.verifier import Verifier

Update = dict[str, Any]  # The part of the state that a node changes.
TurnRuntime = Runtime[ConvCoAContext]  # LangGraph's runtime: the context of the run and its store.
LOOKED = -1  # The index of the findings for the question itself.
_CHECKERS, _CHECKER_SECONDS = 32, 120.0


class Plan(TypedDict):
    """The planner's result, as `ActionChain` describes it."""

    optimized_question: str
    draft_answer: str
    self_contained: bool
    nodes: list[PlannedNode]
    clarification: NotRequired[str]


class Finding(TypedDict):
    """The result of one action for one sub-question; the index -1 stands for the question itself.

    `action` is "" for evidence that was recalled or a look-up that a person rejected. `repairable` says that another action
    input may mend the error.
    """

    index: int
    action: str
    documents: list[Document]
    error: str
    depth: int  # 0 for the first search for the question; otherwise how often `verify` had run when it was sent, plus 1.
    seconds: float
    repairable: bool


class Reply(TypedDict):
    """The answer of a turn while it is being made.

    `text` is "" while the answer is open. Its marks are the numbers of the evidence until the node `answer` renumbers
    them. `confirmed` holds the sentences that the verifier refused and the model confirmed. `shown` is the text streamed so
    far, as part of the message `message_id`. `error` says why the model did not answer.
    """

    text: str
    citations: list[Citation]
    unsupported: list[str]
    confirmed: list[str]
    shown: str
    message_id: str
    error: str


def empty_reply(text: str = "") -> Reply:
    """A reply that is only text, or not written yet."""
    return Reply(text=text, citations=[], unsupported=[], confirmed=[], shown="", message_id="", error="")


class ConvCoAInput(TypedDict, total=False):
    """The input: a question, or the messages of a chat."""

    question: Annotated[str, Field(description="The question, as the user asks it.")]
    messages: Annotated[list[AnyMessage], Field(description="The conversation; its last message asks the question.")]


class ConvCoAOutput(TypedDict, total=False):
    """The output, with the conversation as messages.

    If the turn asks a clarifying question, `clarification` and `answer` are this question. Otherwise `clarification` is "".
    """

    answer: str
    clarification: str
    citations: list[Citation]
    unsupported: list[str]
    chain: list[ChainItem]
    knowledge_set: KnowledgeSetJSON
    usage: Usage
    messages: Annotated[list[AnyMessage], add_messages]


class ThreadState(ConvCoAOutput, total=False):
    """What a thread keeps from turn to turn; only `remember` adds to it."""

    evidence_memory: list[RememberedEvidence]


class ConvCoAState(ThreadState, total=False):
    """The state of a turn; the fields here live for one turn."""

    # Lives for one step: a later turn given as messages must not read an old question.
    question: Annotated[str, EphemeralValue]
    asked: str  # The question.
    asked_back: str  # The earlier question and the clarifying question that `asked` answers; "" if it answers none.
    asked_message_id: str
    approve: list[str]  # Names of actions and nodes that a person approves.
    history: list[tuple[str, str]]
    knowledge_view: str  # The conversation as text for a prompt.
    shared: list[Round]  # Rounds of the user's other threads.
    plan: Plan
    recalled: list[RecalledAnswer]  # Answers of earlier rounds to sub-questions of the plan.
    reused: int  # Number of pieces of evidence from earlier turns.
    findings: Annotated[list[Finding], operator.add]
    items: list[ChainItem]  # The chain after verification.
    unsolved: list[int]  # Indexes of the open items.
    refused: list[int]  # Indexes of the sentences of the plan's answer that the verifier refused.
    searches: list[str]  # What is looked up once more for an answer that is not complete.
    look_ups: Annotated[list[ActionState], EphemeralValue]  # The look-ups that a person has approved, for one step.
    depth: int  # How often the node `verify` has run.
    repaired: list[int]  # Indexes of the nodes of the plan with a new action input.
    costs: Annotated[dict[str, NodeUsage], add_costs]
    reply: Reply


class ActionState(TypedDict):
    """The input of an action node: one look-up."""

    turn: str
    sent: float
    index: int
    depth: int
    action: str
    question: str
    sub_question: str
    guess_answer: str
    action_input: str
    history: list[tuple[str, str]]


def question_of(state: ConvCoAState) -> str:
    """The user's question. If it answers a clarifying question, that and the earlier question stand in front of it."""
    return "\n".join(filter(None, (state.get("asked_back"), state["asked"])))


def clarification_of(plan: Plan) -> str:
    """The clarifying question, if the plan has neither steps nor an answer; otherwise ""."""
    return "" if plan["nodes"] or plan["draft_answer"] else plan.get("clarification", "")


def pairs_of(state: ConvCoAState | ActionState) -> list[tuple[str, str]]:
    """The history as tuples: a checkpoint turns tuples into lists."""
    return [(question, answer) for question, answer in state["history"]]


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
    listed: defaultdict[tuple[int, int], list[list[Document]]] = defaultdict(list)
    for one, documents in sorted(named, key=lambda pair: (pair[0]["index"], -pair[0]["depth"])):
        here = found[one["index"]]
        listed[one["index"], -one["depth"]].append(documents)
        here.action = here.action or one["action"]
        # An unusable input is no failure if another look-up of the sub-question succeeded.
        if not (one["repairable"] and one["index"] in came_back):
            here.error = here.error or one["error"]
    for (index, _), lists in listed.items():
        # The best documents of each search come first.
        ranked = {str(one.id): one for rank in zip_longest(*lists) for one in rank if one is not None}
        known = {document.id for document in found[index].documents}
        found[index].documents += [document for document in ranked.values() if document.id not in known]
    return TurnEvidence(list(numbered.values()), found)


def _with_own_id(document: Document, texts: dict[str, str], ids: dict[tuple[str, str], str]) -> Document:
    """The document under the id of an equal document. If another text has its id, the document gets a new id."""
    title = str(document.metadata.get("title") or "")
    id_ = wanted = ids.setdefault((title, document.page_content), str(document.id))
    number = 1
    while texts.setdefault(id_, document.page_content) != document.page_content:
        number += 1
        id_ = f"{wanted}~{number}"
    return document if id_ == document.id else document.model_copy(update={"id": id_})


@dataclass(frozen=True)
class GraphParts:
    """The parts that the nodes of one graph share."""

    actions: ActionRunner
    reasoner: Callable[[str, ConvCoAContext], Reasoner]  # (node, settings) -> its reasoner; may take a while to build a model.
    without_model: Reasoner  # Answers with quotes if the model is down.
    verifier: Verifier
    memory: ConversationMemory
    defaults: ConvCoAContext  # Settings for runs that give no settings.
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
        """The gate that streams the answer. None if nobody follows the messages, or if a person approves a `reviewed` node."""
        if not is_followed(config) or reviewed & {*state["approve"]}:
            return None
        return SentenceGate(self.checker(state, settings), show, state["reply"]["message_id"])
