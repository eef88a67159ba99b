"""The graph's state: plain types only, so that every checkpoint reads back unchanged, also with strict msgpack."""

from __future__ import annotations

import operator
from typing import Annotated

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from pydantic import Field
from typing_extensions import TypedDict  # pydantic, which makes Studio's schemas, wants this one before Python 3.12

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.memory.evidence import RecalledAnswer, RememberedEvidence
from langgraph_convcoa.memory.knowledge_set import Citation, KnowledgeSetJSON, Round
from langgraph_convcoa.usage import NodeUsage, Usage, add_costs


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
    """The output, with the conversation as messages."""

    answer: str
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


def pairs_of(state: ConvCoAState | ActionState) -> list[tuple[str, str]]:
    """The history as tuples; a checkpoint returns lists."""
    return [(question, answer) for question, answer in state["history"]]
