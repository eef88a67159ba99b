"""The interface of a reasoner: plan and correct, with their requests and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor

from langgraph_convcoa.chain import ActionChain, ChainItem
from langgraph_convcoa.verification.answers import SentenceGate

History = Sequence[tuple[str, str]]
"""Pairs of question and answer, oldest first."""


@dataclass(frozen=True)
class PlanRequest:
    """What the planner knows: the question, the actions it may choose (name -> description) and what came before.

    `evidence` is what was found for the question as it stands; `evidence[n - 1]` is cited as [n]. `knowledge` is the
    conversation so far as text. `recognised` has an entry for each action that takes questions of one form only: True
    if this is one.
    """

    question: str
    actions: dict[str, str]
    history: History = ()
    knowledge: str = ""
    max_sub_questions: int = 6
    language: str = ""
    evidence: Sequence[Document] = ()
    recognised: Mapping[str, bool] = field(default_factory=dict)
    gate: SentenceGate | None = None


@dataclass(frozen=True)
class Unsolved:
    """A sub-question whose guess is missing or not verified, with the evidence found for it, best first.

    Of an answer that the planner gave at once (`CorrectRequest.draft`) each sentence that failed is one; the guess is the
    sentence, and the evidence what it cites.
    """

    index: int
    sub_question: str
    guess_answer: str
    evidence: Sequence[Document]


@dataclass(frozen=True)
class CorrectRequest:
    """Everything that verification did not settle, and what a final answer is written from.

    Attributes:
        question: The user's question as it was put.
        items: What needs another answer.
        optimized_question: The question as the planner understood it.
        chain: The chain as verification left it, open items included.
        evidence: The evidence of the turn; `evidence[n - 1]` is cited as [n].
        draft: The sentences of an answer that the planner gave at once, where only some of them failed (`items`, by their
            index): no other final answer is wanted then.
        gate: Shows the final answer while it is written.
    """

    question: str
    items: Sequence[Unsolved]
    optimized_question: str = ""
    chain: Sequence[ChainItem] = ()
    evidence: Sequence[Document] = ()
    draft: Sequence[str] = ()
    history: History = ()
    knowledge: str = ""
    language: str = ""
    gate: SentenceGate | None = None


@dataclass(frozen=True)
class Correction:
    """The answer of one open item.

    `supported` is False when the evidence does not hold one; `partial` says that it holds only the nearest fact. `evidence`
    are the numbers of what supports it, from 1. `score`, where given, stands in the chain instead of the faith score, which
    says nothing about a copied sentence.
    """

    index: int
    answer: str
    reason: str = ""
    supported: bool = True
    score: float | None = None
    partial: bool = False
    evidence: Sequence[int] = ()


@dataclass(frozen=True)
class Corrected:
    """The corrections, and the final answer with [n] for the n-th piece of evidence; "" where the chain is to stand for it."""

    corrections: Sequence[Correction] = field(default=())
    answer: str = ""


@dataclass(frozen=True)
class BrokenInput:
    """An action input, such as SQL, that its action could not use, and what it said about it."""

    index: int
    action: str
    sub_question: str
    action_input: str
    error: str


@dataclass(frozen=True)
class RepairRequest:
    """All action inputs of a turn that failed, and the descriptions of their actions (name -> description)."""

    question: str
    items: Sequence[BrokenInput]
    actions: dict[str, str]


class Reasoner:
    """Plans, and corrects what verification did not settle.

    A subclass writes `plan` and `correct`; the async methods run them in a thread unless they are written too. `config` is the
    node's configuration: hand it to every model call, so that callbacks, usage counts and streams work.

    Attributes:
        plans_over_evidence: Whether the question is looked up before it is planned.
    """

    plans_over_evidence: bool = True

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        """The chain of sub-questions, or the answer."""
        raise NotImplementedError

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        """The corrections, and the final answer."""
        raise NotImplementedError

    def repair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        """Other action inputs, by the index of the sub-question; none by default."""
        return {}

    def finds(self, question: str, evidence: Sequence[Document], history: History) -> bool:
        """Whether the evidence holds an answer; where it does not, the next action is asked. Always by default."""
        return True

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        return await run_in_executor(config, self.plan, request, config)

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        return await run_in_executor(config, self.correct, request, config)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return await run_in_executor(config, self.repair, request, config)
