"""The node `verify` judges every guess and every sentence of an answer, and decides where the turn goes.

It may go to the node `repair`: one model call that rewrites the action inputs that failed, such as invalid SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite, Send

from langgraph_convcoa.chain import SOLVED, ChainItem, chain_item
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.evidence import RecalledAnswer
from langgraph_convcoa.nodes.parts import (
    LOOKED,
    Found,
    GraphParts,
    TurnEvidence,
    TurnRuntime,
    Update,
    emit_status,
    finding,
    merge_findings,
)
from langgraph_convcoa.nodes.plan import by_way_of_approval, looked_up, send, still_recalled, with_earlier_evidence
from langgraph_convcoa.reasoning.base import BrokenInput, History, RepairRequest
from langgraph_convcoa.state import ConvCoAState, Finding, PlannedNode, pairs_of
from langgraph_convcoa.text.citations import without_marks
from langgraph_convcoa.text.clean import cut_field
from langgraph_convcoa.text.questions import holds_negation
from langgraph_convcoa.verification import verdicts
from langgraph_convcoa.verification.answers import CheckedSentence, Checker
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.verdicts import Verdict, as_claim
from langgraph_convcoa.verification.verifier import Verifier


def verify(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Judge every guess and the answer; no model call. An answer that stands becomes the reply."""
    settings, plan = parts.settings(runtime), state["plan"]
    update: Update = {}
    if state["depth"] == 0:
        findings, reused = _with_memory(parts, state, settings)
        state = {**state, "findings": findings}
        update = {"findings": Overwrite(findings), "reused": state["reused"] + reused}
    evidence, checker = merge_findings(state["findings"]), parts.checker(state, settings)
    checked: list[CheckedSentence] = []
    if plan["nodes"]:
        items, unsolved = verify_chain(
            plan["nodes"], evidence, pairs_of(state), parts.verifier, settings.threshold, still_recalled(state)
        )
        if all(item["status"] in ("kept", "recalled") for item in items):
            checked = checker.check(plan["draft_answer"])
    else:
        checked = checker.check(plan["draft_answer"])
        found = evidence.found[LOOKED]
        item = _item(found, found.action or next(iter(parts.actions.actions)), plan["optimized_question"])
        if found.error and not found.documents:
            item |= {"status": "failed", "reason": found.error}
        items, unsolved = verify_answer(item, checked, checker)
        if not settings.allow_draft_answer:
            unsolved = [0] if items else []
    stands = settings.allow_draft_answer and bool(checked) and all(sentence.stands for sentence in checked)
    for index, item in enumerate(items):
        if index not in unsolved:
            emit_status(index, item)
    return {
        **update,
        "items": items,
        "unsolved": unsolved,
        "reply": {**state["reply"], "text": plan["draft_answer"] if stands else ""},
        "depth": state["depth"] + 1,
    }


def after_verify(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route failed sub-questions to a repair, a deeper look or another action; if none is left, to `correct` or `answer`."""
    settings = parts.settings()
    if settings.max_corrections:
        first = state["depth"] == 1
        # Without a model no input can be repaired, and another action is asked instead.
        repairs = parts.reasoner("repair", settings).plans_over_evidence
        if first and repairs and any(parts.actions[item.action].repairs for item in broken_inputs(state)):
            return "repair"
        again = [*(_deeper(parts, state, settings) if first else []), *_elsewhere(parts, state, settings)]
        if again:
            return by_way_of_approval(state, again)
    return _on(parts, state, settings)


def after_repair(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route the repaired inputs to their actions, together with the deeper looks."""
    settings, nodes = parts.settings(), state["plan"]["nodes"]
    again = [send(state, index, nodes[index], settings) for index in state["repaired"] if index < len(nodes)]
    return by_way_of_approval(state, [*again, *_deeper(parts, state, settings)]) or _on(parts, state, settings)


def repair(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Ask the model once about all inputs; if the call fails, the sub-questions keep their first failure."""
    reasoner = parts.reasoner("repair", parts.settings(runtime))
    try:
        inputs = reasoner.repair(_repair_request(parts, state), config)
    except Exception:  # noqa: BLE001 - whatever a reasoner raises
        inputs = {}
    return _repaired(state, inputs)


async def arepair(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `repair`."""
    # In threads: a model may have to be built, and a description may wait for a database.
    reasoner = await asyncio.to_thread(parts.reasoner, "repair", parts.settings(runtime))
    try:
        inputs = await reasoner.arepair(await asyncio.to_thread(_repair_request, parts, state), config)
    except Exception:  # noqa: BLE001 - as above
        inputs = {}
    return _repaired(state, inputs)


def _repair_request(parts: GraphParts, state: ConvCoAState) -> RepairRequest:
    return RepairRequest(state["plan"]["optimized_question"], broken_inputs(state), parts.actions.descriptions())


def _repaired(state: ConvCoAState, inputs: dict[int, str]) -> Update:
    plan = state["plan"]
    inputs = {item.index: cut_field(inputs[item.index]) for item in broken_inputs(state) if item.index in inputs}
    nodes: list[PlannedNode] = [
        {**node, "action_input": inputs.get(index, node["action_input"])} for index, node in enumerate(plan["nodes"])
    ]
    return {"plan": {**plan, "nodes": nodes}, "repaired": sorted(inputs)}


def broken_inputs(state: ConvCoAState) -> list[BrokenInput]:
    """The action inputs that the actions could not use."""
    nodes = state["plan"]["nodes"]
    failed = {one["index"]: one["error"] for one in state["findings"] if one["repairable"] and 0 <= one["index"] < len(nodes)}
    return [
        BrokenInput(index, nodes[index]["action"], nodes[index]["sub_question"], nodes[index]["action_input"], failed[index])
        for index in sorted(failed)
    ]


def _on(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> str:
    """Route to `correct` if an answer must be written. A model is not asked if it has nothing to read."""
    if state["reply"]["text"]:
        return "answer"
    something = any(one["documents"] for one in state["findings"])
    solved = any(item["status"] in SOLVED for item in state["items"])
    asked = something or solved or not parts.reasoner("plan", settings).plans_over_evidence
    return "correct" if asked else "answer"


def _deeper(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    return [
        send(state, index, item, settings)
        for index, item in enumerate(state["items"])
        if item["status"] == "unsupported" and parts.actions[item["action"]].deepens
    ]


def _elsewhere(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    """Without a model, the actions are asked one after another until an answer is found."""
    reasoner, history = parts.reasoner("plan", settings), pairs_of(state)
    if reasoner.plans_over_evidence:
        return []
    forms = parts.actions.recognised(state["asked"], history)
    names = [name for name in parts.actions.actions if forms.get(name, True)]
    if len(names) == 1:
        return []
    evidence = merge_findings(state["findings"])
    sends = []
    for index, (item, node) in enumerate(zip(state["items"], state["plan"]["nodes"], strict=False)):
        first = node["action"]
        others = [name for name in names if name != first]
        # An action that looks deeper was asked twice.
        asked = state["depth"] - 1 - parts.actions[first].deepens
        is_open = item["status"] in ("unsupported", "failed") and 0 <= asked < len(others)
        if is_open and not reasoner.finds(item["sub_question"], evidence.found[index].documents, history):
            sends.append(send(state, index, {**item, "action": others[asked]}, settings))
    return sends


def verify_chain(
    nodes: Sequence[PlannedNode],
    evidence: TurnEvidence,
    history: History,
    verifier: Verifier,
    threshold: float | None = None,
    recalled: Sequence[RecalledAnswer] = (),
) -> tuple[list[ChainItem], list[int]]:
    """Judge every guess that was not recalled: (items, indexes of the items that the model must answer)."""
    known = {answer["index"]: answer for answer in recalled}
    items: list[ChainItem] = []
    unsolved: list[int] = []
    for index, node in enumerate(nodes):
        here, guess, verdict = evidence.found[index], node["guess_answer"], None
        item = _item(here, here.action or node["action"], node["sub_question"], guess, node["action_input"])
        items.append(item)
        if (earlier := known.get(index)) is not None:
            reason = f"round {earlier['round']} answered it" if earlier["round"] > 0 else "another thread answered it"
            item |= {"answer": without_marks(earlier["answer"]), "status": "recalled"}
            item |= {"score": earlier["score"], "reason": reason}
            continue
        # The evidence for the question itself may also support a guess.
        own = {document.id for document in here.documents}
        documents = [*here.documents, *(document for document in evidence.found[LOOKED].documents if document.id not in own)]
        if guess:
            verdict = judge(guess, node["sub_question"], Evidence.of(documents, history), verifier, threshold)
            item["score"] = verdict.score
        if verdict and verdict.supported:
            item |= {"answer": without_marks(guess), "status": "kept", "reason": verdict.quote}
            put_first(item, documents, verdict)
        elif documents and (here.documents or not here.error):
            item["reason"] = verdict.reason if verdict else "no guess"
            unsolved.append(index)
        elif here.error:
            item |= {"status": "failed", "reason": here.error}
        else:
            item["reason"] = "no evidence was found"
    return items, unsolved


def verify_answer(item: ChainItem, checked: Sequence[CheckedSentence], checker: Checker) -> tuple[list[ChainItem], list[int]]:
    """Judge an answer that the planner gave at once: (its chain, indexes of the sentences that failed).

    The chain has one item: the question, with the answer as its guess. For small talk the chain is empty.
    """
    plain = " ".join(sentence.plain for sentence in checked)
    item = item | {"guess_answer": plain}
    if not checked and not item["evidence"]:
        return [item | {"reason": item["reason"] or "no evidence was found"}], []
    if not checked:
        return [item | {"reason": "no answer was given"}], [0]
    if not any(sentence.claims for sentence in checked):
        silent = any(holds_negation(sentence.plain) for sentence in checked)
        return [item | {"guess_answer": "", "reason": "the evidence holds no answer"}] if silent else [], []
    weakest = score_claims(item, checked, checker)
    if failed := [n for n, sentence in enumerate(checked) if not sentence.stands]:
        return [item | {"reason": f"not verified: “{weakest.plain}” (score {weakest.verdict.score:.2f})"}], failed
    return [item | {"answer": plain, "status": "kept", "reason": weakest.verdict.quote}], []


def score_claims(item: ChainItem, checked: Sequence[CheckedSentence], checker: Checker) -> CheckedSentence:
    """Give an item the score of the weakest claim, and put the cited documents first in its evidence. Returns that claim."""
    claims = [sentence for sentence in checked if sentence.claims]
    weakest = min(claims, key=lambda sentence: sentence.verdict.score)
    cited = [str(checker.evidence[number - 1].id) for sentence in claims for number in sentence.cited]
    item |= {"score": weakest.verdict.score, "evidence": list(dict.fromkeys([*cited, *item["evidence"]]))}
    return weakest


def judge(answer: str, question: str, evidence: Evidence, verifier: Verifier, threshold: float | None) -> Verdict:
    """The verdict on an answer to a sub-question."""
    return verdicts.judge([as_claim(without_marks(answer), question)], evidence, verifier, threshold)[0]


def put_first(item: ChainItem, documents: Sequence[Document], verdict: Verdict) -> None:
    """Put the document that supports the answer first in the item's evidence."""
    first = next((number for number in verdict.documents if number < len(documents)), None)
    if first is not None:
        item["evidence"] = list(dict.fromkeys([str(documents[first].id), *item["evidence"]]))


def _item(found: Found, action: str, sub_question: str, guess: str = "", action_input: str = "") -> ChainItem:
    """An item of the chain with the evidence found for it, before it is judged."""
    item = chain_item(action, sub_question, guess, action_input)
    item["evidence"] = [str(one.id) for one in found.documents]
    paths = {str(one.id): one.metadata.get("graph_path") for one in found.documents}
    # A path of two steps leads straight from the question to the document.
    longer = {id_: [*map(str, path)] for id_, path in paths.items() if isinstance(path, list) and len(path) > 2}
    if longer:
        item["paths"] = longer
    return item


def _with_memory(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> tuple[list[Finding], int]:
    """Add recalled and earlier evidence to the findings; returns the findings and the number of earlier pieces.

    Findings of an `always_fresh` action do not change.
    """
    plan = state["plan"]

    def question(one: Finding) -> str | None:
        if one["index"] < 0:
            return plan["optimized_question"] if one["depth"] else None
        if one["index"] >= len(plan["nodes"]):
            return None
        node = plan["nodes"][one["index"]]
        return None if parts.actions[node["action"]].always_fresh else node["sub_question"]

    given = [*state["findings"], *looked_up(state)]
    findings, reused = with_earlier_evidence(parts, settings, state, given, [question(one) for one in given])
    fresh = {str(document.id): document for one in findings for document in one["documents"]}
    for recalled in still_recalled(state):
        # A recalled piece gets its whole text if this turn found it too: within a turn, an id stands for one text.
        pairs = [(document, fresh.get(str(document.id), document)) for document in recalled["documents"]]
        whole = [other if document.page_content in other.page_content else document for document, other in pairs]
        findings.append(finding(recalled["index"], "", whole))
    return findings, reused
