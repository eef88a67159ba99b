"""The node `approve`: a person decides about the plan, about look-ups before they run, and about the answer before it is kept.

It makes no model call, since LangGraph runs a node that interrupts again from its beginning when the turn is resumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite, Send, interrupt
from pydantic import ValidationError, WrapValidator

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.nodes.answer import awaits_approval, finish
from langgraph_convcoa.nodes.correct import numbers_of
from langgraph_convcoa.nodes.plan import after_plan, recall_plan
from langgraph_convcoa.nodes.review import (
    ANSWER,
    CHAIN,
    PLAN,
    Decided,
    Decisions,
    Review,
    read_decisions,
    review_request,
)
from langgraph_convcoa.nodes.runtime import LOOKED, TurnRuntime, Update, emit, evidence_of
from langgraph_convcoa.nodes.verify import after_repair, after_verify
from langgraph_convcoa.state import ActionState, ConvCoAState, Finding, Plan, PlannedNode
from langgraph_convcoa.text.citations import check_citations

BY_A_PERSON = "written by a person"
"""The reason of the item of the chain that stands for an answer which a person wrote."""
_MARK = re.compile(r"\[(\d+)\]")
Way = list[Send] | str
"""Where a turn goes from a node: branches, or the name of one node."""


def gated(router: Callable[[TurnRuntime, ConvCoAState], Way]) -> Callable[[TurnRuntime, ConvCoAState], Way]:
    """A router that goes by way of `approve` where a person has something to decide."""

    def route(turn: TurnRuntime, state: ConvCoAState) -> Way:
        way = router(turn, state)
        return "approve" if _due(state, way) else way

    return route


def after_answer(turn: TurnRuntime, state: ConvCoAState) -> Way:
    """The answer is kept, once a person has approved it where that is wanted."""
    return "remember"


def after_approve(turn: TurnRuntime, state: ConvCoAState) -> Way:
    """Where the turn was going, but for what was rejected."""
    way = _way_on(turn, state)
    if isinstance(way, list):
        # A rejected look-up has its finding already.
        found = {(finding["index"], finding["depth"]) for finding in state["findings"]}
        way = [send for send in way if (send.arg["index"], send.arg["depth"]) not in found] or "verify"
    return "approve" if _due(state, way) else way


def approve(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Update:
    """One interrupt for all that is to be decided at this step."""
    reviews = _due(state, _way_on(turn, state))
    if not reviews:
        return {}
    decisions = _decisions(reviews, list(turn.actions.actions), turn.settings().max_sub_questions)
    named = (PLAN, ANSWER)
    keys = [review.name if review.name in named else _key(review.index, state["depth"]) for review in reviews]
    if reviews[0].name == PLAN:
        update = _of_plan(turn, state, decisions[0])
    elif reviews[0].name == ANSWER:
        update = _of_answer(turn, state, decisions[0])
    else:
        update = _of_look_ups(state, reviews, decisions)
    return {"decided": [*state["decided"], *keys], **update}


def _decisions(reviews: Sequence[Review], actions: Collection[str], max_sub_questions: int) -> list[Decided]:
    """Interrupt until a person has decided. LangGraph keeps only a response that is valid, so a wrong one can be mended."""

    def read(response: Any, _: Any) -> list[Decided]:
        return read_decisions(response, reviews, actions, max_sub_questions)

    form: Any = Annotated[Decisions, WrapValidator(read)]
    try:
        decisions: list[Decided] = interrupt(review_request(reviews), response_schema=form)
    except ValidationError as error:
        raise error.errors()[0]["ctx"]["error"] from None
    return decisions


def _way_on(turn: TurnRuntime, state: ConvCoAState) -> Way:
    """Where the turn goes from the node before `approve`, as its state says."""
    if state["final"]:
        return after_answer(turn, state)
    if state["depth"] == 0:
        return after_plan(turn, state)
    way = after_verify(turn, state)
    # There is nothing to approve on the way to `repair`, so the turn comes from there.
    return after_repair(turn, state) if way == "repair" else way


def _due(state: ConvCoAState, way: Way) -> list[Review]:
    """What a person has to decide before the turn goes this way."""
    wanted, decided = state.get("approve") or [], state.get("decided") or []
    if not wanted:
        return []
    if state["final"]:
        return [_answer_review(state)] if awaits_approval(state) and ANSWER not in decided else []
    if state["depth"] == 0 and PLAN in wanted and PLAN not in decided:
        return [_plan_review(state)]
    payloads: list[ActionState] = [send.arg for send in way] if isinstance(way, list) else []
    return [
        _look_up_review(payload)
        for payload in payloads
        if payload["action"] in wanted and _key(payload["index"], payload["depth"] - 1) not in decided
    ]


def _key(index: int, depth: int) -> str:
    """Under which a look-up is noted as decided; one at another depth is another look-up."""
    return f"{index} at depth {depth}"


def _plan_review(state: ConvCoAState) -> Review:
    plan, steps = state["plan"], len(state["plan"]["nodes"])
    what = f"{steps} sub-question{'' if steps == 1 else 's'} to look up" if steps else "the answer at once"
    sources = [f"[{n}] {_source(document)}" for n, document in enumerate(evidence_of(state["findings"]).documents, start=1)]
    about = "\n".join([f"The plan for “{state['asked']}”: {what}.", *(sources if plan["draft_answer"] else ())])
    args = {
        "optimized_question": plan["optimized_question"],
        CHAIN: [dict(node) for node in plan["nodes"]],
        "draft_answer": plan["draft_answer"],
    }
    return Review(PLAN, args, about, "optimized_question")


def _source(document: Document) -> str:
    return str(document.metadata.get("source") or document.id)


def _look_up_review(payload: ActionState) -> Review:
    args = {key: payload[key] for key in ("sub_question", "guess_answer", "action_input")}
    again = ", and deeper than before" if payload["depth"] > 1 else ""
    about = f"Look up “{payload['sub_question']}” with {payload['action']}{again}."
    return Review(payload["action"], args, about, "sub_question", payload["index"])


def _answer_review(state: ConvCoAState) -> Review:
    sources = [f"[{n}] {c['source']}: “{c['quote']}”" for n, c in enumerate(state["final_citations"], start=1)]
    about = "\n".join([f"The answer to “{state['asked']}”, before it is kept.", *sources])
    return Review(ANSWER, {"answer": state["final"]}, about, "answer")


def _of_plan(turn: TurnRuntime, state: ConvCoAState, decided: Decided) -> Update:
    plan = state["plan"]
    if decided.type == "approve":
        return {}
    if decided.type == "reject":
        items = [_failed(node, _rejected(decided)) for node in plan["nodes"]]
        # There is no answer that a person could approve.
        all_decided = [*state["decided"], PLAN, ANSWER]
        return {"items": items, "final": _sentence("plan", decided), "unsolved": [], "decided": all_decided}
    nodes: list[PlannedNode] = decided.args[CHAIN]
    draft = decided.args["draft_answer"]
    if nodes != plan["nodes"] and draft == plan["draft_answer"]:
        # It answers the chain as it was.
        draft = ""
    question = decided.args["optimized_question"]
    edited: Plan = {**plan, "optimized_question": question, "nodes": nodes, "draft_answer": draft}
    looked = [finding for finding in state["findings"] if finding["index"] == LOOKED]
    return {"plan": edited, "recalled": recall_plan(turn, state, edited), "findings": Overwrite(looked)}


def _of_answer(turn: TurnRuntime, state: ConvCoAState, decided: Decided) -> Update:
    if decided.type == "reject":
        return {"final": _sentence("answer", decided), "final_citations": [], "final_unsupported": []}
    return _written(turn, state, decided.args["answer"]) if decided.type == "edit" else {}


def _written(turn: TurnRuntime, state: ConvCoAState, text: str) -> Update:
    """What a person wrote in the place of the answer, whose [n] are those of the answer that was shown.

    Its citations are checked and completed as those of a model are. What no evidence supports is the person's own word: it
    stays, and the chain says so.
    """
    checker = turn.checker(state)
    numbers = numbers_of(checker.evidence)
    text, cited, _ = check_citations(text, len(state["final_citations"]))
    known = [numbers.get(state["final_citations"][n]["id"], 0) for n in cited]
    text = _MARK.sub(lambda mark: f"[{known[int(mark[1]) - 1]}]", text)
    final, citations, checked, _ = finish(text, [], checker)
    if not checked:
        final, citations = text, []
    own = [sentence.plain for sentence in checked if not sentence.stands]
    emit({"type": "answer", "unsupported": own, "removed_citations": 0})
    item: ChainItem = {
        "action": next(iter(turn.actions.actions)),
        "sub_question": state["plan"]["optimized_question"],
        "guess_answer": "",
        "action_input": "",
        "answer": " ".join(sentence.plain for sentence in checked) or text,
        "status": "unsupported" if own else "corrected",
        "score": min((sentence.verdict.score for sentence in checked), default=0.0),
        "reason": f"{BY_A_PERSON}; no evidence supports “{own[0]}”" if own else BY_A_PERSON,
        "evidence": [citation["id"] for citation in citations],
    }
    # Without a chain, the one item there is stands for the question itself.
    items = [*state["items"], item] if state["plan"]["nodes"] else [item]
    return {"final": final, "final_citations": citations, "final_unsupported": own, "items": items}


def _of_look_ups(state: ConvCoAState, reviews: Sequence[Review], decisions: Sequence[Decided]) -> Update:
    """Edits change the plan and the chain; a rejection is what the action brought back."""
    nodes, items = list(state["plan"]["nodes"]), list(state["items"])
    findings: list[Finding] = []
    for review, decided in zip(reviews, decisions, strict=True):
        if decided.type == "reject":
            findings.append(
                {
                    "index": review.index,
                    "depth": state["depth"] + 1,
                    "documents": [],
                    "error": _rejected(decided),
                    "repairable": False,
                    "seconds": 0.0,
                }
            )
        elif decided.type == "edit":
            step: PlannedNode = {"action": decided.name, **decided.args}  # type: ignore[typeddict-item]
            if review.index == LOOKED:
                # What was to be looked up as it stands becomes a chain of one step.
                return {
                    "plan": {**state["plan"], "nodes": [step]},
                    "decided": [*state["decided"], *(_key(0, 0), _key(LOOKED, 0))],
                }
            nodes[review.index] = step
            if items:
                items[review.index] = {**items[review.index], **step}
    return {"plan": {**state["plan"], "nodes": nodes}, "items": items, "findings": findings}


def _failed(node: PlannedNode, reason: str) -> ChainItem:
    return {**node, "answer": "", "status": "failed", "score": 0.0, "reason": reason, "evidence": []}  # type: ignore[typeddict-item]  # `paths` may be left out


def _rejected(decided: Decided) -> str:
    return f"rejected: {decided.message}" if decided.message else "rejected"


def _sentence(what: str, decided: Decided) -> str:
    """The plain answer of a turn that a person has ended."""
    return f"The {what} was rejected: {decided.message}" if decided.message else f"The {what} was rejected."
