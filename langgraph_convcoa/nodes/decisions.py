"""Decisions of a person about a plan, look-ups or an answer, in the form of LangChain's human-in-the-loop middleware.

Agent Inbox and agent-chat-ui show the requests.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ValidationError,
    create_model,
)

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.asked import LONGEST_QUESTION
from langgraph_convcoa.text.clean import clean_value

if TYPE_CHECKING:
    from langchain.agents.middleware.human_in_the_loop import HITLRequest

PLAN, ANSWER, CORRECT = "plan", "answer", "correct"
REVIEWED_NODES = (PLAN, CORRECT, ANSWER)
"""Nodes whose result a person may approve. An action is approved before it runs."""
_CHECKPOINTER = "__pregel_checkpointer"


def check_approve(names: Collection[str], actions: Collection[str], config: RunnableConfig | None = None) -> list[str]:
    """Check the names of the setting `approve`; returns each name once.

    Raises:
        InputError: A name is neither an action of the graph nor a node whose result can be approved, or the graph of a run
            (`config`) has no checkpointer.
    """
    known = [*REVIEWED_NODES, *actions]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"approve names {unknown[0]!r}: it takes {', '.join(known)}")
    # LangGraph always sets the key. If a later version renames it, the check is skipped.
    if names and config and config.get("configurable", {}).get(_CHECKPOINTER, True) is None:
        raise InputError("approve needs a checkpointer, so that the turn can wait: build_graph(...).compile(checkpointer=...)")
    return [name for name in known if name in names]


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty: write it, or reject")
    return text


def _read_json(value: Any) -> Any:
    """Read the chain from JSON, because some forms edit every argument as text."""
    try:
        return json.loads(value or "[]") if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error


Text = Annotated[str, Field(max_length=LONGEST_QUESTION), BeforeValidator(clean_value)]
NeededText = Annotated[Text, AfterValidator(_says_something)]
_model: Any = create_model  # the type of `create_model` accepts no types made at run time


def arguments(**fields: tuple[Any, Any]) -> type[BaseModel]:
    """A model of what a person may edit: the type and the present value of each argument."""
    model: type[BaseModel] = _model(
        "Arguments", __config__=ConfigDict(extra="forbid", strict=True, validate_default=True), **fields
    )
    return model


def chain_type(actions: Collection[str], max_sub_questions: int) -> Any:
    """The type of a plan's chain: a list of steps, or the same as JSON."""
    empty, action = (Text, ""), (Literal[tuple(actions)], ...)
    step = arguments(action=action, sub_question=(NeededText, ...), guess_answer=empty, action_input=empty)
    return Annotated[list[step], Field(max_length=max_sub_questions), BeforeValidator(_read_json)]  # type: ignore[valid-type]


class Review(NamedTuple):
    """One thing that a person decides about.

    Attributes:
        name: An action, `plan` or `answer`.
        form: The model of its arguments, with their present values.
        description: What will happen.
        others: Names that an edit may put in the place of `name`.
    """

    name: str
    form: type[BaseModel]
    description: str
    others: Sequence[str] = ()

    @property
    def args(self) -> dict[str, Any]:
        """The present arguments."""
        return {name: field.default for name, field in self.form.model_fields.items()}


class Decided(NamedTuple):
    """A decision: the name and the arguments to continue with, and the message of a rejection."""

    type: Literal["approve", "edit", "reject"]
    name: str
    args: dict[str, Any]
    message: str = ""

    @property
    def reason(self) -> str:
        """The error of a rejected look-up."""
        return f"rejected: {self.message}" if self.message else "rejected"

    @property
    def sentence(self) -> str:
        """The answer of a turn that a rejection ended."""
        return f"The {self.name} was {self.reason}{'' if self.message else '.'}"


def review_request(reviews: Sequence[Review]) -> HITLRequest:
    """The value of one interrupt for several reviews."""
    return {
        "action_requests": [{"name": r.name, "args": r.args, "description": r.description} for r in reviews],
        "review_configs": [{"action_name": r.name, "allowed_decisions": ["approve", "edit", "reject"]} for r in reviews],
    }


class _Approve(BaseModel):
    type: Literal["approve"]


class _Reject(BaseModel):
    type: Literal["reject"]
    message: Text | None = None


def _decision_type(review: Review) -> Any:
    edited = _model("EditedAction", name=(Literal[(review.name, *review.others)], review.name), args=(review.form, ...))
    edit = _model("Edit", type=(Literal["edit"], ...), edited_action=(edited, ...))
    return Annotated[_Approve | edit | _Reject, Discriminator("type")]


def decide(reviews: Sequence[Review]) -> list[Decided]:
    """Interrupt the turn until a person has decided about each review. Arguments that an edit leaves out stay unchanged.

    LangGraph does not keep an invalid response, so the turn goes on waiting.

    Raises:
        InputError: A decision cannot be carried out.
    """
    schema = _model("HITLResponse", decisions=(tuple[tuple(map(_decision_type, reviews))], ...))  # type: ignore[misc]
    try:
        response = interrupt(review_request(reviews), response_schema=schema)
    except ValidationError as error:
        first, names = error.errors()[0], ", ".join(review.name for review in reviews)
        where, reason = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        wanted = (
            f'resume with {{"decisions": [...]}}, one decision for each of {names}, in this order: approve, edit or reject'
        )
        raise InputError(f"{wanted} ({where or 'the response'}: {reason})") from None
    found = []
    for review, decision in zip(reviews, response.decisions, strict=True):
        if decision.type == "edit":
            found.append(Decided("edit", decision.edited_action.name, decision.edited_action.args.model_dump()))
        else:
            found.append(Decided(decision.type, review.name, review.args, getattr(decision, "message", "") or ""))
    return found
