"""The state of the graph, and the costs of a turn: plain types only, so that every checkpoint reads back unchanged."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable
from typing import Annotated, Any, NotRequired, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from pydantic import Field
from typing_extensions import TypedDict  # pydantic, which makes Studio's schemas, wants this one before Python 3.12

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.memory.evidence import RecalledAnswer, RememberedEvidence
from langgraph_convcoa.memory.knowledge_set import Citation, KnowledgeSetJSON, Round


class NodeUsage(TypedDict):
    """The cost of one node in this turn."""

    llm_calls: int
    input_tokens: int
    output_tokens: int
    retrievals: int
    seconds: float


class Usage(NodeUsage):
    """The cost of a turn, and of each of its nodes.

    `seconds` counts parallel branches once. `recalled` is the number of sub-questions that the knowledge set answered without
    a retrieval, `reused` the number of pieces of evidence from earlier turns.
    """

    recalled: int
    reused: int
    per_node: dict[str, NodeUsage]


def node_usage(seconds: float = 0.0, retrievals: int = 0) -> NodeUsage:
    """A cost with no model call."""
    return {"llm_calls": 0, "input_tokens": 0, "output_tokens": 0, "retrievals": retrievals, "seconds": seconds}


def add_costs(costs: dict[str, NodeUsage], more: dict[str, NodeUsage]) -> dict[str, NodeUsage]:
    """Reducer: add up the costs of each node. A turn begins with `recall`, so its cost replaces the old ones."""
    costs = {} if "recall" in more else costs
    return costs | {node: _sum([costs.get(node) or node_usage(), cost]) for node, cost in more.items()}


def total_usage(costs: dict[str, NodeUsage], seconds: float, recalled: int = 0, reused: int = 0) -> Usage:
    """The cost of a turn that took `seconds`, from the costs of its nodes."""
    return {**_sum(costs.values()), "seconds": seconds, "recalled": recalled, "reused": reused, "per_node": costs}


def _sum(costs: Iterable[NodeUsage]) -> NodeUsage:
    each = [node_usage(), *costs]
    return cast("NodeUsage", {name: sum(cost[name] for cost in each) for name in node_usage()})  # type: ignore[literal-required]


class PlannedNode(TypedDict):
    """A step of the plan."""

    action: str
    sub_question: str
    guess_answer: str
    action_input: str


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
    depth: int
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
    return {
        "text": text, "citations": [], "unsupported": [], "confirmed": [], "shown": "", "message_id": "", "error": "",
    }  # fmt: skip


class ConvCoAInput(TypedDict, total=False):
    """The input: a question, or the messages of a chat."""

    question: Annotated[str, Field(description="The question, as the user asks it.")]
    messages: Annotated[list[AnyMessage], Field(description="The conversation; its last message asks the question.")]


class ConvCoAOutput(TypedDict, total=False):
    """The output, with the conversation as messages.

    If the turn asks back, `clarification` and `answer` are the question to the user; otherwise `clarification` is "".
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
    asked: str
    # If `asked` answers a question back: the earlier question and the question back. Otherwise "".
    asked_back: str
    asked_message_id: str
    # Names of actions and nodes that a person approves.
    approve: list[str]
    history: list[tuple[str, str]]
    knowledge_view: str
    shared: list[Round]
    plan: Plan
    recalled: list[RecalledAnswer]
    reused: int
    findings: Annotated[list[Finding], operator.add]
    items: list[ChainItem]
    # Indexes of the open items. Without a chain: indexes of the failed sentences of the answer.
    unsolved: list[int]
    depth: int
    repaired: list[int]
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
    """The question of the turn, with the earlier question and the question back if the user's message answers one."""
    return "\n".join(filter(None, (state.get("asked_back"), state["asked"])))


def clarification_of(plan: Plan) -> str:
    """The question back to the user, if the plan is nothing else; otherwise ""."""
    return "" if plan["nodes"] or plan["draft_answer"] else plan.get("clarification", "")


def pairs_of(state: ConvCoAState | ActionState) -> list[tuple[str, str]]:
    """The history as tuples; a checkpoint returns lists."""
    return [(question, answer) for question, answer in state["history"]]


class UsageCounter(BaseCallbackHandler):
    """Counts the model requests under a node's config, streamed or not.

    If the provider reports no tokens, they are estimated at four characters a token.
    """

    run_inline = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompts: dict[UUID, list[BaseMessage]] = {}
        self.llm_calls = 0
        self.input_tokens = 0
        self.output_tokens = 0

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        with self._lock:
            self.llm_calls += 1
            self._prompts[run_id] = messages[0] if messages else []

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        with self._lock:
            prompt = self._prompts.pop(run_id, None)
            if prompt is None:
                return
            generation = response.generations[0][0] if response.generations and response.generations[0] else None
            message = generation.message if isinstance(generation, ChatGeneration) else None
            reported = message.usage_metadata if isinstance(message, AIMessage) else None
            if reported:
                self.input_tokens += reported["input_tokens"]
                self.output_tokens += reported["output_tokens"]
            else:
                self.input_tokens += count_tokens_approximately(prompt)
                self.output_tokens += count_tokens_approximately([message]) if message is not None else 0

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        with self._lock:
            prompt = self._prompts.pop(run_id, None)
            if prompt is not None:
                self.input_tokens += count_tokens_approximately(prompt)

    def cost(self, seconds: float) -> NodeUsage:
        """The cost of a node that took `seconds`, with the counts so far."""
        counted = {"llm_calls": self.llm_calls, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return cast("NodeUsage", {**node_usage(seconds), **counted})
