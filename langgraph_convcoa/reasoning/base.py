"""The interface of a reasoner: plan and correct, with their requests and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor

from langgraph_convcoa.chain import ActionChain, ChainItem
from langgraph_convcoa.reasoning.streaming import SentenceGate

History = Sequence[tuple[str, str]]  # Pairs of question and answer, oldest first.


@dataclass(frozen=True)
class PlanRequest:
    """The input of the planner.

    `actions` maps names to descriptions. `knowledge` is the conversation as text. `evidence[n - 1]` is cited as [n].
    An action that takes only one form of question has an entry in `recognised`: whether this question has that form.
    With `may_ask`, the planner may ask a clarifying question. With `asked_back`, `question` answers a clarifying question.
    """

    question: str
    actions: dict[str, str]
    history: History = ()
    knowledge: str = ""
    max_sub_questions: int = 6
    language: str = ""
    evidence: Sequence[Document] = ()
    recognised: Mapping[str, bool] = field(default_factory=dict)
    may_ask: bool = False
    asked_back: bool = False
    gate: SentenceGate | None = None


@dataclass(frozen=True)
class Unsolved:
    """A sub-question whose guess is missing or not verified, with its evidence, best first.

    If the planner answered at once (`CorrectRequest.draft`), the guess is a failed sentence, with the evidence that it cites.
    """

    index: int
    sub_question: str
    guess_answer: str
    evidence: Sequence[Document]


@dataclass(frozen=True)
class CorrectRequest:
    """The items that verification did not settle, and the material for the final answer.

    `draft` has the sentences of an answer that the planner gave at once; only those in `items` (by index) are corrected.
    """

    question: str
    items: Sequence[Unsolved]
    optimized_question: str = ""
    chain: Sequence[ChainItem] = ()  # All items after verification, open or not.
    evidence: Sequence[Document] = ()  # `evidence[n - 1]` is cited as [n].
    draft: Sequence[str] = ()
    history: History = ()
    knowledge: str = ""
    language: str = ""
    gate: SentenceGate | None = None  # Shows the final answer while it is written.


@dataclass(frozen=True)
class Correction:
    """The answer of one open item.

    `supported` is False if the evidence holds no answer. `partial` is True if it holds only the nearest fact. `evidence` has
    the cited numbers, from 1. `score` replaces the verifier's score, which says nothing about a copied sentence.
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
    """The corrections, and the final answer with [n] for the n-th piece of evidence ("" to make it from the chain)."""

    corrections: Sequence[Correction] = field(default=())
    answer: str = ""


@dataclass(frozen=True)
class BrokenInput:
    """An action input, such as SQL, that its action could not use, and the error message of the action."""

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

    A subclass defines `plan` and `correct`. The async methods run them in a thread unless the subclass defines them too. Pass
    `config` to every model call, so that callbacks, usage counts and streams work.
    """

    uses_model: bool = True  #: Whether a model reads the evidence. Then the question is looked up before it is planned.

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        """The chain of sub-questions, or the answer."""
        raise NotImplementedError

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        """The corrections, and the final answer."""
        raise NotImplementedError

    def repair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        """New action inputs, by the index of the sub-question. Empty by default."""
        return {}

    def finds(self, question: str, evidence: Sequence[Document], history: History) -> bool:
        """True if the evidence holds an answer; otherwise the next action is asked. Always True by default."""
        return True

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        return await run_in_executor(config, self.plan, request, config)

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        return await run_in_executor(config, self.correct, request, config)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return await run_in_executor(config, self.repair, request, config)
