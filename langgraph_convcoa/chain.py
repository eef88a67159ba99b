"""The action chain, as the planner writes it and as a turn leaves it (Pan et al. 2024a, equation 1)."""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

Status = Literal["kept", "confirmed", "corrected", "filled", "partial", "recalled", "unsupported", "failed"]
"""kept: the evidence supports the guess; confirmed: the verifier refused it, but the model read the evidence again and says
that it holds; corrected / filled: another answer / an answer where there was none; partial: the evidence holds only the
nearest fact, which is the answer; recalled: the knowledge set had it; unsupported: the evidence holds no answer; failed: the
action failed."""
SUPPORTED: tuple[Status, ...] = ("kept", "confirmed", "corrected", "filled")
"""Answers that the evidence of this turn supports, by the verifier or by the model."""
SOLVED: tuple[Status, ...] = (*SUPPORTED, "partial", "recalled")
"""Answers that may stand in the final one."""


class ActionNode(BaseModel):
    """One step of a chain: (Action, Sub, Missing flag, Guess answer) and an input of the action's own."""

    model_config = ConfigDict(frozen=True)

    action: str
    sub_question: str
    guess_answer: str = ""
    missing: bool = False
    action_input: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether there is no guess to verify: the flag says so, or the guess is blank."""
        return self.missing or not self.guess_answer.strip()


class ActionChain(BaseModel):
    """A plan: the question as understood, the nodes, and the answer as far as the planner can give it.

    Where the planner has seen evidence and nothing is open, there are no nodes and `draft_answer` is the answer, with [n] for
    the n-th piece of evidence.

    `self_contained` says whether the sub-questions can be understood without the conversation; where not, actions get the
    history with them.
    """

    model_config = ConfigDict(frozen=True)

    optimized_question: str
    nodes: tuple[ActionNode, ...] = Field(default=())
    draft_answer: str = ""
    self_contained: bool = True

    @classmethod
    def single(cls, question: str, action: str) -> ActionChain:
        """The chain that looks a question up as it stands: what is left when no plan can be had."""
        node = ActionNode(action=action, sub_question=question, missing=True)
        return cls(optimized_question=question, nodes=(node,), self_contained=False)


class ChainItem(TypedDict):
    """A node of the chain after its turn, as it stands in the graph's output. `evidence` holds document ids, best first.

    `paths` tells of those that a walk along the evidence graph led to, by id, the steps from the question to them.
    """

    action: str
    sub_question: str
    guess_answer: str
    action_input: str
    answer: str
    status: Status
    score: float
    reason: str
    evidence: list[str]
    paths: NotRequired[dict[str, list[str]]]
