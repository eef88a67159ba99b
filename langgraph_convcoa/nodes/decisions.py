"""Decisions of a person about a plan, look-ups or an answer, as LangChain's human-in-the-loop middleware has them.

Agent Inbox and agent-chat-ui show the requests.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt
from pydantic import ValidationError, WrapValidator

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.asked import LONGEST_QUESTION
from langgraph_convcoa.text.clean import clean

if TYPE_CHECKING:
    from langchain.agents.middleware.human_in_the_loop import HITLRequest

PLAN, ANSWER, CORRECT = "plan", "answer", "correct"
REVIEWED_NODES = (PLAN, CORRECT, ANSWER)
"""Nodes whose result may be approved; a person approves an action before it runs."""
CHAIN = "chain"
"""The argument of a plan that is no text."""
_CHECKPOINTER = "__pregel_checkpointer"
_TYPES = "approve, edit or reject"
_STEP = ("action", "sub_question", "guess_answer", "action_input")


def check_approve(names: Collection[str], actions: Collection[str]) -> list[str]:
    """What a run wants approved, each once.

    Raises:
        InputError: A name is neither an action of the graph nor a node whose result can be approved.
    """
    known = [*REVIEWED_NODES, *actions]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"approve names {unknown[0]!r}: it takes {', '.join(known)}")
    return [name for name in known if name in names]


def wanted_approvals(wanted: Collection[str], actions: Collection[str], config: RunnableConfig) -> list[str]:
    """The setting `approve` of a run, checked before anything has been paid for.

    It is kept in the state, since a turn is often resumed without the settings with which it began.
    """
    names = check_approve(wanted, actions)
    # Without the key, LangGraph has another name for it, and is believed to have one.
    if names and config.get("configurable", {}).get(_CHECKPOINTER, True) is None:
        raise InputError("approve needs a checkpointer, so that the turn can wait: build_graph(...).compile(checkpointer=...)")
    return names


@dataclass(frozen=True)
class Review:
    """One thing that a person decides about.

    `needed` is the argument that must say something.
    """

    name: str
    args: Mapping[str, Any]
    description: str
    needed: str


class Decided(NamedTuple):
    """A decision about a review: the name and the arguments to go on with, and why something was rejected."""

    type: Literal["approve", "edit", "reject"]
    name: str
    args: dict[str, Any]
    message: str

    @property
    def reason(self) -> str:
        """The reason of a look-up that was rejected."""
        return f"rejected: {self.message}" if self.message else "rejected"

    @property
    def sentence(self) -> str:
        """The answer of a turn that was ended by a rejection."""
        return f"The {self.name} was rejected: {self.message}" if self.message else f"The {self.name} was rejected."


def decide(reviews: Sequence[Review], actions: Collection[str], max_sub_questions: int) -> list[Decided]:
    """Interrupt the turn until a person has decided; one decision for each review.

    LangGraph keeps only a response that is valid: after a wrong one the turn still waits.

    Raises:
        InputError: A decision cannot be carried out.
    """
    # Imported here: it takes a while, and few turns wait for a person.
    from langchain.agents.middleware.human_in_the_loop import HITLResponse

    def read(response: Any, _: Any) -> list[Decided]:
        return read_decisions(response, reviews, actions, max_sub_questions)

    form: Any = Annotated[HITLResponse, WrapValidator(read)]
    try:
        decisions: list[Decided] = interrupt(review_request(reviews), response_schema=form)
    except ValidationError as error:
        raise error.errors()[0]["ctx"]["error"] from None
    return decisions


def review_request(reviews: Sequence[Review]) -> HITLRequest:
    """The value of the one interrupt for all that is to be decided at a step.

    Example:
        >>> request = review_request([Review("web_querying", {"sub_question": "Who?"}, "Look up “Who?”.", "sub_question")])
        >>> request["action_requests"][0]["name"], request["review_configs"][0]["allowed_decisions"]
        ('web_querying', ['approve', 'edit', 'reject'])
    """
    return {
        "action_requests": [{"name": r.name, "args": dict(r.args), "description": r.description} for r in reviews],
        "review_configs": [{"action_name": r.name, "allowed_decisions": ["approve", "edit", "reject"]} for r in reviews],
    }


def read_decisions(
    response: Any, reviews: Sequence[Review], actions: Collection[str], max_sub_questions: int
) -> list[Decided]:
    """The decisions of a person, one for each review in order, edits checked and complete.

    Arguments that an edit leaves out stay as they were; an edit may name another of `actions`.

    Raises:
        InputError: The number of decisions is wrong, a decision is none, or an edit cannot be carried out.

    Example:
        >>> review = Review("web_querying", {"sub_question": "Who?", "action_input": "who"}, "", "sub_question")
        >>> edit = {"name": "web_querying", "args": {"sub_question": "Who wrote it?"}}
        >>> read_decisions({"decisions": [{"type": "edit", "edited_action": edit}]}, [review], ["web_querying"], 6)[0].args
        {'sub_question': 'Who wrote it?', 'action_input': 'who'}
    """
    given = response.get("decisions") if isinstance(response, Mapping) else None
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError(f'resume with {{"decisions": [...]}}: {_TYPES} for each of {_named(reviews)}')
    if len(given) != len(reviews):
        raise InputError(f"give one decision for each of {_named(reviews)}, in this order: {len(reviews)}, not {len(given)}")
    return [_decided(one, review, actions, max_sub_questions) for one, review in zip(given, reviews, strict=True)]


def _decided(decision: Any, review: Review, actions: Collection[str], max_sub_questions: int) -> Decided:
    kind = decision.get("type") if isinstance(decision, Mapping) else None
    if kind == "approve":
        return Decided("approve", review.name, dict(review.args), "")
    if kind == "reject":
        message = _text(decision.get("message") or "", "the message of a rejection")
        return Decided("reject", review.name, dict(review.args), message)
    if kind != "edit":
        raise InputError(f"the decision about {review.name} must be of type {_TYPES}, not {kind!r}")
    edited = decision.get("edited_action")
    if not isinstance(edited, Mapping) or not isinstance(edited.get("args"), Mapping):
        raise InputError(f'an edit of {review.name} needs "edited_action": {{"name": ..., "args": {{...}}}}')
    name = edited.get("name", review.name)
    if name != review.name and (review.name in REVIEWED_NODES or name not in actions):
        other = "" if review.name in REVIEWED_NODES else f" or another of {', '.join(actions)}"
        raise InputError(f"an edit of {review.name} must name {review.name}{other}, not {name!r}")
    return Decided("edit", name, _edited(edited["args"], review, actions, max_sub_questions), "")


def _edited(given: Mapping[str, Any], review: Review, actions: Collection[str], max_sub_questions: int) -> dict[str, Any]:
    if unknown := [str(key) for key in given if key not in review.args]:
        raise InputError(f"an edit of {review.name} cannot set {unknown[0]!r}: it has {', '.join(review.args)}")
    args: dict[str, Any] = {}
    for key, value in {**review.args, **given}.items():
        about = f"{key} of the edited {review.name}"
        args[key] = _chain(value, actions, max_sub_questions) if key == CHAIN else _text(value, about)
    if not args[review.needed].strip():
        raise InputError(f"{review.needed} of the edited {review.name} is empty: write it, or reject")
    return args


def _chain(chain: Any, actions: Collection[str], max_sub_questions: int) -> list[dict[str, str]]:
    """The steps of an edited plan; a form that edits every argument as text gives them as JSON."""
    if isinstance(chain, str):
        try:
            chain = json.loads(chain or "[]")
        except ValueError as error:
            raise InputError(f"the edited chain is no JSON: {error}") from error
    if not isinstance(chain, Sequence) or isinstance(chain, str):
        raise InputError("the edited chain must be a list of steps")
    if len(chain) > max_sub_questions:
        raise InputError(f"the edited chain has {len(chain)} steps, at most {max_sub_questions} (max_sub_questions)")
    return [_step(step, number, actions) for number, step in enumerate(chain, start=1)]


def _step(step: Any, number: int, actions: Collection[str]) -> dict[str, str]:
    if not isinstance(step, Mapping):
        raise InputError(f"step {number} of the edited chain must be an object with {', '.join(_STEP)}")
    if unknown := [str(key) for key in step if key not in _STEP]:
        raise InputError(f"step {number} of the edited chain has {unknown[0]!r}: it takes {', '.join(_STEP)}")
    if step.get("action") not in actions:
        raise InputError(
            f"step {number} of the edited chain must name one of {', '.join(actions)}, not {step.get('action')!r}"
        )
    texts = {key: _text(step.get(key, ""), f"{key} of step {number}") for key in _STEP}
    if not texts["sub_question"].strip():
        raise InputError(f"step {number} of the edited chain has no sub_question")
    return texts


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, not {type(value).__name__}")
    if len(value) > LONGEST_QUESTION:
        raise InputError(f"{what} has {len(value):,} characters, {LONGEST_QUESTION:,} at most")
    return clean(value)


def _named(reviews: Sequence[Review]) -> str:
    return ", ".join(review.name for review in reviews)
