"""The node `verify`: the faith score of every guess against its evidence and the history, and where a turn goes from there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite, Send

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.evidence import integrate
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.memory.recall import RecalledAnswer
from langgraph_convcoa.nodes.repair import broken_inputs
from langgraph_convcoa.nodes.runtime import Found, TurnRuntime, Update, by_index, emit_progress
from langgraph_convcoa.reasoning.base import History, InputRepairer
from langgraph_convcoa.state import ConvCoAState, Finding, PlannedNode, pairs_of
from langgraph_convcoa.usage import node_usage
from langgraph_convcoa.verification.mrfs import ConvMRFS, conv_mrfs


def verify(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Update:
    """Fan-in of the actions; no model call."""
    start = time.perf_counter()
    update: Update = {}
    findings = state["findings"]
    if state["depth"] == 0:
        findings, reused = _with_memory(turn, state)
        update = {"findings": Overwrite(findings), "reused": reused}
    nodes, history = state["plan"]["nodes"], pairs_of(state)
    items, unsolved = verify_chain(nodes, by_index(findings), history, turn.settings(), state["recalled"])
    for index, item in enumerate(items):
        if index not in unsolved:
            emit_progress(index, item, item["status"], item["score"], item["reason"])
    costs = {"verify": node_usage(time.perf_counter() - start)}
    return {**update, "items": items, "unsolved": unsolved, "depth": state["depth"] + 1, "costs": costs}


def after_verify(turn: TurnRuntime, state: ConvCoAState) -> list[Send] | str:
    """What failed goes back once, with another input or to look deeper; then on to `correct`, or past it."""
    if state["depth"] == 1 and turn.settings().max_corrections:
        if broken_inputs(state) and isinstance(turn.reasoner(), InputRepairer):
            return "repair"
        if deeper := _deeper(turn, state):
            return deeper
    return "correct" if state["unsolved"] else "answer"


def after_repair(turn: TurnRuntime, state: ConvCoAState) -> list[Send] | str:
    """The inputs that were rewritten, and with them what goes deeper."""
    again = [turn.send(state, index, state["plan"]["nodes"][index]) for index in state["repaired"]]
    return [*again, *_deeper(turn, state)] or ("correct" if state["unsolved"] else "answer")


def _deeper(turn: TurnRuntime, state: ConvCoAState) -> list[Send]:
    return [
        turn.send(state, index, item)
        for index, item in enumerate(state["items"])
        if item["status"] == "unsupported" and turn.actions.deepens(item["action"])
    ]


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
            **node,
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
            put_first(item, here.documents, verdict)
            continue
        if verdict is not None:
            item["score"] = verdict.score
        if here.documents:
            item["reason"] = f"score {verdict.score:.2f} is not above {verdict.threshold:.2f}" if verdict else "no guess"
            unsolved.append(index)
        elif here.error:
            item |= {"status": "failed", "reason": here.error}
        else:
            item["reason"] = "no evidence was found"
    return items, unsolved


def judge(candidate: str, evidence: Sequence[Document], question: str, history: History, settings: ConvCoAContext) -> ConvMRFS:
    """The faith score of an answer to a sub-question, in the form that the settings ask for."""
    return conv_mrfs(
        candidate,
        evidence,
        question=question,
        history=history,
        weights=settings.weights,
        threshold=settings.threshold,
        mode="plain" if settings.verify_items == "tokens" else "default",
    )


def put_first(item: ChainItem, documents: Sequence[Document], verdict: ConvMRFS) -> None:
    """The document that supports the answer leads the item's evidence."""
    if verdict.reference is not None and verdict.reference < len(documents):
        id_ = str(documents[verdict.reference].id)
        item["evidence"] = [id_, *(other for other in item["evidence"] if other != id_)]


def _with_memory(turn: TurnRuntime, state: ConvCoAState) -> tuple[list[Finding], int]:
    """The turn's findings with recalled evidence, and with earlier evidence in the weakest's place: (findings, reused).

    What an `always_fresh` action found stays as it is, and so does the result of a query, which is an answer and no choice of
    passages.
    """
    findings, settings = list(state["findings"]), turn.settings()
    evidence = state.get("evidence_memory") or []
    reused = 0
    if evidence and settings.evidence_memory and any(finding["documents"] for finding in findings):
        plan = state["plan"]
        knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
        rounds = turn.memory.topic(
            knowledge, plan["optimized_question"], leans=not plan["self_contained"], capacity=settings.memory_capacity
        )
        for n, finding in enumerate(findings):
            node = plan["nodes"][finding["index"]] if finding["index"] >= 0 else None
            action = node["action"] if node else next(iter(turn.actions.actions))
            if turn.actions.always_fresh(action) or any("query" in document.metadata for document in finding["documents"]):
                continue
            question = node["sub_question"] if node else plan["optimized_question"]
            documents, taken = integrate(question, finding["documents"], evidence, rounds, turn.memory.vectors)
            findings[n] = {**finding, "documents": documents}
            reused += taken
    fresh = {str(document.id): document for finding in findings for document in finding["documents"]}
    for answer in state.get("recalled") or []:
        documents = [_whole(document, fresh) for document in answer["documents"]]
        findings.append(
            {"index": answer["index"], "depth": 1, "documents": documents, "error": "", "repairable": False, "seconds": 0.0}
        )
    return findings, reused


def _whole(document: Document, fresh: Mapping[str, Document]) -> Document:
    """A recalled quote with its whole text, where another sub-question has just found that: an id means one text in a turn."""
    other = fresh.get(str(document.id))
    return other if other is not None and document.page_content in other.page_content else document
