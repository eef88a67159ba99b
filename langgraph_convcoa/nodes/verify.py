"""From findings to a verified chain: merging evidence, judging guesses, applying corrections. No model, no graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.recall import RecalledAnswer
from langgraph_convcoa.reasoning.base import Correction, Unsolved
from langgraph_convcoa.state import Finding, PlannedNode
from langgraph_convcoa.usage import NodeUsage
from langgraph_convcoa.verification.mrfs import ConvMRFS, conv_mrfs
from langgraph_convcoa.verification.references import References

History = Sequence[tuple[str, str]]


@dataclass
class Found:
    """Everything found for one sub-question: the deeper look first, no document twice."""

    documents: list[Document] = field(default_factory=list)
    error: str = ""


def by_index(findings: Sequence[Finding]) -> Mapping[int, Found]:
    """Merge findings by sub-question, whatever order they arrived in; an id means one text in the whole turn."""
    merged: defaultdict[int, Found] = defaultdict(Found)
    texts: dict[str, str] = {}
    for finding in sorted(findings, key=lambda f: (f["index"], -f["depth"])):
        found = merged[finding["index"]]
        known = {document.id for document in found.documents}
        named = [_with_own_id(document, texts) for document in finding["documents"]]
        found.documents += [document for document in named if document.id not in known]
        found.error = found.error or finding["error"]
    return merged


def _with_own_id(document: Document, texts: dict[str, str]) -> Document:
    """Two actions may call different texts by one id; the second gets another."""
    id_ = wanted = str(document.id)
    number = 1
    while texts.setdefault(id_, document.page_content) != document.page_content:
        number += 1
        id_ = f"{wanted}~{number}"
    return document if id_ == document.id else document.model_copy(update={"id": id_})


def verify_chain(
    nodes: Sequence[PlannedNode],
    found: Mapping[int, Found],
    history: History,
    settings: ConvCoAContext,
    recalled: Sequence[RecalledAnswer] = (),
) -> tuple[list[ChainItem], list[int]]:
    """Judge every guess that was not recalled: (items, indexes of those that another answer is to be written for)."""
    known = {answer["index"]: answer for answer in recalled}
    items: list[ChainItem] = []
    unsolved: list[int] = []
    for index, node in enumerate(nodes):
        here = found[index]
        item: ChainItem = {
            "action": node["action"],
            "sub_question": node["sub_question"],
            "guess_answer": node["guess_answer"],
            "action_input": node["action_input"],
            "answer": "",
            "status": "unsupported",
            "score": 0.0,
            "reason": "",
            "evidence": [str(document.id) for document in here.documents],
        }
        items.append(item)
        if (earlier := known.get(index)) is not None:
            item |= {"answer": earlier["answer"], "status": "recalled", "score": earlier["score"]}
            item["reason"] = f"round {earlier['round']} answered it" if earlier["round"] > 0 else "another thread answered it"
            continue
        guess = node["guess_answer"]
        verdict = judge(guess, here.documents, node["sub_question"], history, settings) if guess else None
        if verdict is not None and verdict.faithful:
            item |= {"answer": guess, "status": "kept", "score": verdict.score, "reason": verdict.quote}
            _first(item, here.documents, verdict)
            continue
        item["score"] = verdict.score if verdict else 0.0
        if here.documents:
            item["reason"] = (
                "no guess" if verdict is None else f"score {verdict.score:.2f} is not above {verdict.threshold:.2f}"
            )
            unsolved.append(index)
        elif here.error:
            item |= {"status": "failed", "reason": here.error}
        else:
            item["reason"] = "no evidence was found"
    return items, unsolved


def judge(
    candidate: str, evidence: Sequence[Document] | References, question: str, history: History, settings: ConvCoAContext
) -> ConvMRFS:
    """The faith score of an answer to a sub-question, in the form that the settings ask for."""
    plain = settings.verify_items == "tokens"
    return conv_mrfs(
        candidate,
        evidence,
        question=question,
        history=history,
        weights=settings.weights,
        threshold=settings.threshold,
        mode="plain" if plain else "default",
    )


def apply_corrections(
    items: Sequence[ChainItem],
    unsolved: Sequence[Unsolved],
    corrections: Sequence[Correction],
    failure: str,
    settings: ConvCoAContext,
) -> list[ChainItem]:
    """The chain with its corrected answers; where none was given the best evidence stands in (Pan et al. 2024a, alg. 1)."""
    given = {correction.index: correction for correction in corrections}
    result = [item.copy() for item in items]
    for open_item in unsolved:
        item = result[open_item.index]
        correction = given.get(open_item.index)
        if correction is not None and not correction.supported:
            reason = correction.reason or "the evidence holds no answer"
            item |= {"answer": "", "status": "unsupported", "reason": reason}
            continue
        if correction is None:
            answer = best_sentence(open_item)
            reason = f"the best evidence stands in: {failure or 'the model gave no answer to this sub-question'}"
        else:
            answer, reason = correction.answer, correction.reason
        verdict = judge(answer, open_item.evidence, open_item.sub_question, (), settings)
        item |= {
            "answer": answer,
            "status": "corrected" if open_item.guess_answer else "filled",
            "score": verdict.score if correction is None or correction.score is None else correction.score,
            "reason": reason,
        }
        _first(item, open_item.evidence, verdict)
    return result


def best_sentence(open_item: Unsolved) -> str:
    """The sentence of the evidence that is closest to the sub-question, else the best passage's quote."""
    verdict = conv_mrfs(open_item.sub_question, open_item.evidence)
    return verdict.quote or str(open_item.evidence[0].metadata.get("quote") or open_item.evidence[0].page_content[:300])


def _first(item: ChainItem, documents: Sequence[Document], verdict: ConvMRFS) -> None:
    """The document that bears the answer out leads the item's evidence."""
    if verdict.reference is not None and verdict.reference < len(documents):
        id_ = str(documents[verdict.reference].id)
        item["evidence"] = [id_, *(other for other in item["evidence"] if other != id_)]


def event(index: int, item: ChainItem) -> dict[str, Any]:
    """The progress event of a judged sub-question."""
    return {
        "type": "sub_question",
        "index": index,
        "sub_question": item["sub_question"],
        "action": item["action"],
        "status": item["status"],
        "score": item["score"],
        "reason": item["reason"],
    }


def turn_seconds(costs: Mapping[str, NodeUsage], findings: Sequence[Finding], actions: set[str]) -> float:
    """Seconds of a turn: the nodes in sequence, and of the parallel branches of each depth the longest."""
    longest: defaultdict[int, float] = defaultdict(float)
    for finding in findings:
        longest[finding["depth"]] = max(longest[finding["depth"]], finding["seconds"])
    return sum(cost["seconds"] for node, cost in costs.items() if node not in actions) + sum(longest.values())
