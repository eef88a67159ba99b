"""The action chain: as planned, and with its results after the turn (Pan et al. 2024a, equation 1)."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, cast

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

Status = Literal["kept", "confirmed", "corrected", "filled", "partial", "recalled", "asked", "unsupported", "failed"]
"""The outcome of a sub-question:

- kept: the evidence supports the guess;
- confirmed: the verifier refused the guess, but the model read the evidence again and says that it holds;
- corrected, filled: the model replaced the guess, or answered a sub-question that had no guess;
- partial: the evidence does not fully answer the sub-question, and the answer is the nearest fact;
- recalled: the knowledge set had the answer;
- asked: the question has several meanings, and the user was asked which one;
- unsupported: the evidence holds no answer;
- failed: the action failed.
"""
SUPPORTED: tuple[Status, ...] = ("kept", "confirmed", "corrected", "filled")
"""Statuses of an answer that the evidence of this turn supports, as judged by the verifier or the model."""
SOLVED: tuple[Status, ...] = (*SUPPORTED, "partial", "recalled")
"""Statuses of an answer that may be part of the final answer."""


class ActionNode(BaseModel):
    """One step of a chain: the paper's (Action, Sub-question, Missing flag, Guess answer), and an input for the action."""

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
    """A plan: the restated question, the steps, and the planner's draft of the answer.

    Attributes:
        optimized_question: The question, restated in full.
        nodes: Steps to look up; empty if the planner already had enough evidence.
        draft_answer: The answer, with [n] for the n-th piece of evidence.
        self_contained: Whether the sub-questions can be understood without the conversation; if not, actions get the history.
        clarification: A clarifying question, if nothing settles what the question means; then there is no answer.
    """

    model_config = ConfigDict(frozen=True)

    optimized_question: str
    nodes: tuple[ActionNode, ...] = Field(default=())
    draft_answer: str = ""
    self_contained: bool = True
    clarification: str = ""

    @classmethod
    def single(cls, question: str, action: str) -> ActionChain:
        """Make a chain that looks up the question itself, for a turn without a plan."""
        node = ActionNode(action=action, sub_question=question, missing=True)
        return cls(optimized_question=question, nodes=(node,), self_contained=False)


class PlannedNode(TypedDict):
    """A step of the plan."""

    action: str
    sub_question: str
    guess_answer: str
    action_input: str


class ChainItem(PlannedNode):
    """A node of the chain after the turn, as the graph returns it.

    `evidence` holds document ids, best first. For each document that was found through other documents of the
    evidence graph, `paths` holds the steps from the question to the document.
    """

    answer: str
    status: Status
    score: float
    reason: str
    evidence: list[str]
    paths: NotRequired[dict[str, list[str]]]


def chain_item(action: str, sub_question: str, guess_answer: str = "", action_input: str = "") -> ChainItem:
    """Make an item of the chain. It has no answer and no evidence until it is judged."""
    step = {"action": action, "sub_question": sub_question, "guess_answer": guess_answer, "action_input": action_input}
    open_: dict[str, Any] = {"answer": "", "status": "unsupported", "score": 0.0, "reason": "", "evidence": []}
    return cast("ChainItem", step | open_)
