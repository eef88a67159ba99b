"""The node `approve`: a person decides about the plan, or about look-ups before they run.

It makes no model call, because LangGraph runs an interrupted node from its beginning when the turn is resumed. The node
`answer` lets a person decide about the answer. Requests and decisions have the form of LangChain's human-in-the-loop
middleware, so that Agent Inbox and agent-chat-ui show them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite, interrupt
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

from langgraph_convcoa.chain import chain_item
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.knowledge_set import asks
from langgraph_convcoa.nodes.plan import LONGEST_QUESTION, recall_plan
from langgraph_convcoa.state import (
    LOOKED,
    ActionState,
    ConvCoAState,
    Finding,
    GraphParts,
    Plan,
    PlannedNode,
    TurnRuntime,
    Update,
    clarification_of,
    empty_reply,
    finding,
    merge_findings,
    question_of,
)
from langgraph_convcoa.text.clean import clean_value
from langgraph_convcoa.verification.answer_check import Checker

if TYPE_CHECKING:
    from langchain.agents.middleware.human_in_the_loop import HITLRequest


def approve(parts: GraphParts, state: Any, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Interrupt the turn once: for the plan, or for all look-ups of a step (`look_ups`, which come with a `Send`)."""
    return _look_ups(parts, state) if "look_ups" in state else _plan(parts, state, runtime)


def _plan(parts: GraphParts, state: ConvCoAState, runtime: TurnRuntime) -> Update:
    """Ask about the plan. A rejection becomes the reply of the turn."""
    settings, plan = runtime.context, state["plan"]
    [decided] = decide([_plan_review(state, chain_type(parts.actions, settings.max_sub_questions))])
    if decided.type == "reject":
        items = [{**chain_item(**node), "status": "failed", "reason": decided.reason} for node in plan["nodes"]]
        return {"items": items, "reply": empty_reply(decided.sentence), "plan": {**plan, "clarification": ""}}
    if decided.type == "edit":
        edited: Plan = {**plan, "optimized_question": decided.args["optimized_question"], "nodes": decided.args["chain"]}
        # A clarifying question that a person changed into a statement is an answer.
        asked, draft = decided.args.get("clarification", ""), decided.args["draft_answer"]
        stays = asked == clarification_of(plan) or still_asks(asked, parts.checker(state, settings))
        edited["clarification"], draft = (asked, draft) if stays else ("", draft or asked)
        # An unchanged draft belongs to the old chain: it is dropped if the chain changed.
        old_draft = edited["nodes"] != plan["nodes"] and draft == plan["draft_answer"]
        edited["draft_answer"] = "" if old_draft else draft
        looked = [one for one in state["findings"] if one["index"] == LOOKED]
        recalled = recall_plan(parts, state, edited, settings)
        return {"plan": edited, "recalled": recalled, "findings": Overwrite(looked)}
    return {}


def still_asks(text: str, checker: Checker) -> bool:
    """Whether a question back still asks after a person's edit: it has a question, and no claim that evidence supports."""
    return asks(text) and not any(sentence.claims and sentence.stands for sentence in checker.check(text))


def _look_ups(parts: GraphParts, state: Any) -> Update:
    """Ask about look-ups. An edit changes the plan and the chain; a rejection becomes the finding of the look-up."""
    look_ups: list[ActionState] = state["look_ups"]
    reviewed = [look_up for look_up in look_ups if look_up["action"] in state["approve"]]
    decisions = decide([_look_up_review(look_up, list(parts.actions)) for look_up in reviewed])
    plan, items = {**state["plan"], "nodes": [*state["plan"]["nodes"]]}, [*state["items"]]
    approved = [look_up for look_up in look_ups if look_up["action"] not in state["approve"]]
    findings: list[Finding] = []
    for look_up, decided in zip(reviewed, decisions, strict=True):
        index = look_up["index"]
        if decided.type == "reject":
            findings.append(finding(index, "", error=decided.reason, depth=look_up["depth"]))
            continue
        if decided.type == "edit":
            step: PlannedNode = {"action": decided.name, **decided.args}  # type: ignore[typeddict-item]
            if index == LOOKED:
                # The question itself becomes a chain of one step.
                index, plan["nodes"] = 0, [step]
            else:
                plan["nodes"][index] = step
            if items:
                items[index] = {**items[index], **step}
            look_up = {**look_up, **step, "index": index}
        approved.append(look_up)
    return {"plan": plan, "items": items, "findings": findings, "look_ups": approved}


def _plan_review(state: ConvCoAState, chain: Any) -> Review:
    plan, steps = state["plan"], len(state["plan"]["nodes"])
    asked = clarification_of(plan)
    at_once = "a clarifying question" if asked else "the answer at once"
    what = f"{steps} sub-question{'' if steps == 1 else 's'} to look up" if steps else at_once
    lines = [f"The plan for “{question_of(state)}”: {what}."]
    if plan["draft_answer"]:
        evidence = merge_findings(state["findings"]).documents
        lines += [f"[{n}] {document.metadata.get('source') or document.id}" for n, document in enumerate(evidence, 1)]
    form = arguments(
        optimized_question=(NeededText, plan["optimized_question"]),
        chain=(chain, [dict(node) for node in plan["nodes"]]),
        draft_answer=(Text, plan["draft_answer"]),
        **({"clarification": (Text, asked)} if asked else {}),
    )
    return Review("plan", form, "\n".join(lines))


def _look_up_review(look_up: ActionState, actions: list[str]) -> Review:
    form = arguments(
        sub_question=(NeededText, look_up["sub_question"]),
        guess_answer=(Text, look_up["guess_answer"]),
        action_input=(Text, look_up["action_input"]),
    )
    again = ", and deeper than before" if look_up["depth"] > 1 else ""
    about = f"Look up “{look_up['sub_question']}” with {look_up['action']}{again}."
    return Review(look_up["action"], form, about, actions)


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
    """One thing that a person decides about."""

    name: str  # An action, `plan` or `answer`.
    form: type[BaseModel]  # The model of its arguments, with their present values.
    description: str  # What will happen.
    others: Sequence[str] = ()  # Names that an edit may put in the place of `name`.

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

    LangGraph does not keep an invalid response, so the turn waits on. Raises InputError for a decision that cannot be used.
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
