"""The node `verify`: checks every guess of the chain, or every sentence of the answer; no model call."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite

from langgraph_convcoa.chain import ChainItem, chain_item
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.evidence import RecalledAnswer
from langgraph_convcoa.nodes.plan import looked_up, still_recalled, with_earlier_evidence
from langgraph_convcoa.nodes.runtime import emit_status
from langgraph_convcoa.reasoning.base import History
from langgraph_convcoa.state import (
    LOOKED,
    ConvCoAState,
    Finding,
    Found,
    GraphParts,
    PlannedNode,
    TurnEvidence,
    TurnRuntime,
    Update,
    finding,
    merge_findings,
    pairs_of,
)
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.questions import holds_negation
from langgraph_convcoa.verification.answer_check import CheckedSentence, Checker, Verdict, as_claim, judge
from langgraph_convcoa.verification.premise import Evidence
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
        item = _item(found, found.action or next(iter(parts.actions)), plan["optimized_question"])
        if found.error and not found.documents:
            item |= {"status": "failed", "reason": found.error}
        items, unsolved = verify_answer(item, checked, checker)
        if not settings.allow_draft_answer:
            # The node `correct` writes every answer.
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
            verdict = check_guess(guess, node["sub_question"], Evidence.of(documents, history), verifier, threshold)
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


def check_guess(answer: str, question: str, evidence: Evidence, verifier: Verifier, threshold: float | None) -> Verdict:
    """The verdict on an answer to a sub-question."""
    return judge([as_claim(without_marks(answer), question)], evidence, verifier, threshold)[0]


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
