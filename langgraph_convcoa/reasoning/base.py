"""The interface of a reasoner: plan, correct and answer, with their requests and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor

from langgraph_convcoa.chain import ActionChain, ChainItem

History = Sequence[tuple[str, str]]
"""Pairs of question and answer, oldest first."""


@dataclass(frozen=True)
class PlanRequest:
    """What the planner knows: the question, the actions it may choose (name -> description) and what came before."""

    question: str
    actions: dict[str, str]
    history: History = ()
    knowledge: str = ""
    max_sub_questions: int = 6
    language: str = ""


@dataclass(frozen=True)
class Unsolved:
    """A sub-question whose guess is missing or not supported, with the evidence found for it, best first."""

    index: int
    sub_question: str
    guess_answer: str
    evidence: Sequence[Document]


@dataclass(frozen=True)
class CorrectRequest:
    """All sub-questions of a turn that need another answer."""

    question: str
    items: Sequence[Unsolved]
    history: History = ()
    language: str = ""


@dataclass(frozen=True)
class Correction:
    """The answer of one sub-question; `supported` is False when the evidence does not hold one.

    `score`, where given, stands in the chain instead of the faith score, which says nothing about a copied sentence.
    """

    index: int
    answer: str
    reason: str = ""
    supported: bool = True
    score: float | None = None


@dataclass(frozen=True)
class AnswerRequest:
    """The solved chain. `evidence[n - 1]` is what the answer cites as [n]."""

    question: str
    optimized_question: str
    chain: Sequence[ChainItem]
    evidence: Sequence[Document]
    history: History = ()
    knowledge: str = ""
    language: str = ""


@dataclass(frozen=True)
class Answer:
    """The final text, its [n] counting `cited`, the indexes into the request's evidence in the order of first use."""

    text: str
    cited: Sequence[int] = field(default=())
    removed_citations: int = 0
    message_id: str | None = None


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


@runtime_checkable
class InputRepairer(Protocol):
    """A reasoner that can write another action input: index of the sub-question -> input. Not every one can."""

    def repair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]: ...

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]: ...


@runtime_checkable
class Reasoner(Protocol):
    """Plans, corrects and answers. Subclass it and write the three plain methods; the async ones then run them in a thread.

    `config` is the node's configuration: hand it to every model call, so that callbacks, usage counts and streams work.
    """

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain: ...

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> list[Correction]: ...

    def answer(self, request: AnswerRequest, config: RunnableConfig | None = None) -> Answer: ...

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        return await run_in_executor(config, self.plan, request, config)

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> list[Correction]:
        return await run_in_executor(config, self.correct, request, config)

    async def aanswer(self, request: AnswerRequest, config: RunnableConfig | None = None) -> Answer:
        return await run_in_executor(config, self.answer, request, config)
