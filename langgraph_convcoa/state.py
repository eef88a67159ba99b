"""The graph's state: plain types only, so that every checkpoint reads back the same, strict msgpack included."""

from __future__ import annotations

import operator
from typing import Annotated, Literal, NotRequired

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from pydantic import Field
from typing_extensions import TypedDict  # pydantic, which makes Studio's schemas, wants this one before Python 3.12

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.memory.evidence import RememberedEvidence
from langgraph_convcoa.memory.knowledge_set import Citation, KnowledgeSetJSON, Round
from langgraph_convcoa.memory.recall import RecalledAnswer
from langgraph_convcoa.usage import NodeUsage, Usage, add_costs


class PlannedNode(TypedDict):
    """A node of the plan as the state holds it."""

    action: str
    sub_question: str
    guess_answer: str
    action_input: str


class Plan(TypedDict):
    """The planner's result as the state holds it."""

    optimized_question: str
    draft_answer: str
    self_contained: bool
    nodes: list[PlannedNode]


class Finding(TypedDict):
    """What one action brought back for one sub-question; `index` -1 is what was found for the question itself.

    `repairable` says that another action input may mend the error; `action`, where given, which one it was.
    """

    index: int
    depth: int
    documents: list[Document]
    error: str
    repairable: bool
    seconds: float
    action: NotRequired[str]


class Reply(TypedDict):
    """The answer of a turn in the making.

    `text` cites the evidence by its own numbers until the node `answer` renumbers its marks; "" while it is open. `confirmed`:
    sentences that the verifier refused and the model confirmed. `shown`: what was streamed so far, as a part of the message
    `message_id`. `error`: why the model did not answer.
    """

    text: str
    citations: list[Citation]
    unsupported: list[str]
    confirmed: list[str]
    shown: str
    message_id: str
    error: str


Origin = Literal["", "plan", "correct", "chain", "quotes", "person"]
"""How an answer came about: in the planning call, in the second call, from the chain, as quotes because the model was down, or
by a person; "" while it is open."""


def empty_reply(text: str = "") -> Reply:
    """A reply that is only text, or not written yet."""
    return {
        "text": text, "citations": [], "unsupported": [], "confirmed": [], "shown": "", "message_id": "", "error": "",
    }  # fmt: skip


class ConvCoAInput(TypedDict, total=False):
    """What a user gives: a question, or the messages of a chat whose last one asks it."""

    question: Annotated[str, Field(description="The question, as the user asks it.")]
    messages: Annotated[list[AnyMessage], Field(description="The conversation; its last message asks the question.")]


class ConvCoAOutput(TypedDict, total=False):
    """What a user gets, and the conversation as messages."""

    answer: str
    citations: list[Citation]
    unsupported: list[str]
    chain: list[ChainItem]
    knowledge_set: KnowledgeSetJSON
    usage: Usage
    messages: Annotated[list[AnyMessage], add_messages]


class ThreadState(ConvCoAOutput, total=False):
    """The part of the state that outlasts a turn, which is what a thread is; written by `remember` only."""

    evidence_memory: list[RememberedEvidence]


class ConvCoAState(ThreadState, total=False):
    """Everything that a turn keeps; the fields here live for one turn."""

    # For one step, so that a later turn given as messages does not read an old question.
    question: Annotated[str, EphemeralValue]
    asked: str
    asked_message_id: str
    # What a person decides about in this turn.
    approve: list[str]
    history: list[tuple[str, str]]
    knowledge_view: str
    shared: list[Round]
    plan: Plan
    recalled: list[RecalledAnswer]
    reused: int
    findings: Annotated[list[Finding], operator.add]
    items: list[ChainItem]
    # Of a chain the open items; of an answer that was given at once its sentences that failed.
    unsolved: list[int]
    depth: int
    repaired: list[int]
    costs: Annotated[dict[str, NodeUsage], add_costs]
    reply: Reply
    origin: Origin


class ActionState(TypedDict):
    """The payload of one action branch."""

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


def pairs_of(state: ConvCoAState) -> list[tuple[str, str]]:
    """The history as pairs of question and answer; a checkpoint gives tuples back as lists."""
    return [(question, answer) for question, answer in state["history"]]
