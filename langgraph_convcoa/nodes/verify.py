"""The node `verify`: the verdict on every guess and on every sentence of an answer, and where a turn goes from there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite, Send

from langgraph_convcoa.chain import SOLVED, ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.recall import RecalledAnswer
from langgraph_convcoa.nodes.act import by_way_of_approval, send
from langgraph_convcoa.nodes.drafts import Checked, Checker
from langgraph_convcoa.nodes.evidence import LOOKED, Evidence, evidence_of, with_earlier_evidence
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit_progress
from langgraph_convcoa.nodes.plan import looked_up, still_recalled
from langgraph_convcoa.nodes.repair import broken_inputs
from langgraph_convcoa.reasoning.base import History
from langgraph_convcoa.state import ConvCoAState, Finding, PlannedNode, pairs_of
from langgraph_convcoa.text.citations import without_marks
from langgraph_convcoa.text.questions import holds_negation
from langgraph_convcoa.usage import node_usage
from langgraph_convcoa.verification import verdicts
from langgraph_convcoa.verification.premise import Evidence as Premises
from langgraph_convcoa.verification.verdicts import Verdict, as_claim
from langgraph_convcoa.verification.verifier import Verifier


def verify(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """Judge the answer or the draft and every guess; no model call. An answer that stands as it is becomes the reply."""
    start, settings = time.perf_counter(), parts.settings(runtime)
    update: Update = {}
    findings, plan = state["findings"], state["plan"]
    if state["depth"] == 0:
        findings, reused = _with_memory(parts, state, settings)
        update = {"findings": Overwrite(findings), "reused": state["reused"] + reused}
    evidence = evidence_of(findings)
    checker = parts.checker(state, settings, findings)
    if plan["nodes"]:
        items, unsolved = verify_chain(
            plan["nodes"], evidence, pairs_of(state), parts.verifier, settings.threshold, still_recalled(state)
        )
        kept = all(item["status"] in ("kept", "recalled") for item in items)
        checked = checker.check(plan["draft_answer"]) if kept else []
    else:
        checked = checker.check(plan["draft_answer"])
        items, unsolved = verify_answer(_question_item(parts, state, evidence), checked, checker)
    stands = settings.allow_draft_answer and bool(checked) and all(sentence.stands for sentence in checked)
    if not settings.allow_draft_answer and not plan["nodes"]:
        unsolved = [0] if items else []
    for index, item in enumerate(items):
        if index not in unsolved:
            emit_progress(index, item, item["status"], item["score"], item["reason"])
    return {
        **update,
        "items": items,
        "unsolved": unsolved,
        "reply": {**state["reply"], "text": plan["draft_answer"] if stands else ""},
        "origin": "plan" if stands else "",
        "depth": state["depth"] + 1,
        "costs": {"verify": node_usage(time.perf_counter() - start)},
    }


def after_verify(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """What failed goes back once, with another input or to look deeper; then on to `correct`, or past it."""
    settings = parts.settings()
    if settings.max_corrections:
        first = state["depth"] == 1
        if first and any(parts.actions.repairs(item.action) for item in broken_inputs(state)):
            return "repair"
        again = [*(_deeper(parts, state, settings) if first else []), *_elsewhere(parts, state, settings)]
        if again:
            return by_way_of_approval(state, again)
    return _on(parts, state, settings)


def after_repair(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """The inputs that were rewritten, and with them what goes deeper."""
    settings, nodes = parts.settings(), state["plan"]["nodes"]
    again = [send(state, index, nodes[index], settings) for index in state["repaired"] if index < len(nodes)]
    return by_way_of_approval(state, [*again, *_deeper(parts, state, settings)]) or _on(parts, state, settings)


def _on(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> str:
    """`correct` where an answer is to be written. No model is asked about nothing."""
    if state["reply"]["text"]:
        return "answer"
    something = any(finding["documents"] for finding in state["findings"])
    solved = any(item["status"] in SOLVED for item in state["items"])
    asked = something or solved or not parts.reasoner("plan", settings).plans_over_evidence
    return "correct" if asked else "answer"


def _deeper(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    return [
        send(state, index, item, settings)
        for index, item in enumerate(state["items"])
        if item["status"] == "unsupported" and parts.actions.deepens(item["action"])
    ]


def _elsewhere(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    """Without a model: what was not found goes to the next action that was not asked yet, one after another."""
    reasoner, history = parts.reasoner("plan", settings), pairs_of(state)
    forms = parts.actions.recognised(state["asked"], history)
    names = [name for name in parts.actions.actions if forms.get(name, True)]
    if reasoner.plans_over_evidence or len(names) == 1:
        return []
    evidence = evidence_of(state["findings"])
    sends = []
    for index, (item, node) in enumerate(zip(state["items"], state["plan"]["nodes"], strict=False)):
        first = node["action"]
        others = [name for name in names if name != first]
        # An action that looks deeper was asked twice.
        asked = state["depth"] - 1 - parts.actions.deepens(first)
        is_open = item["status"] in ("unsupported", "failed") and 0 <= asked < len(others)
        if is_open and not reasoner.finds(item["sub_question"], evidence.found[index].documents, history):
            sends.append(send(state, index, {**item, "action": others[asked]}, settings))
    return sends


def verify_chain(
    nodes: Sequence[PlannedNode],
    evidence: Evidence,
    history: History,
    verifier: Verifier,
    threshold: float | None = None,
    recalled: Sequence[RecalledAnswer] = (),
) -> tuple[list[ChainItem], list[int]]:
    """Judge every guess that was not recalled: (items, indexes of those that another answer is to be written for)."""
    known = {answer["index"]: answer for answer in recalled}
    prepared: dict[tuple[str | None, ...], Premises] = {}
    items: list[ChainItem] = []
    unsolved: list[int] = []
    for index, node in enumerate(nodes):
        here = evidence.found[index]
        # What the question itself found may support a guess too.
        own = {document.id for document in here.documents}
        documents = [*here.documents, *(document for document in evidence.looked if document.id not in own)]
        item: ChainItem = {
            **node,  # type: ignore[typeddict-item]  # `paths` may be left out
            "action": here.action or node["action"],
            "answer": "",
            "status": "unsupported",
            "score": 0.0,
            "reason": "",
            "evidence": [str(document.id) for document in here.documents],
        }
        if paths := _paths(here.documents):
            item["paths"] = paths
        items.append(item)
        if (earlier := known.get(index)) is not None:
            item |= {"answer": without_marks(earlier["answer"]), "status": "recalled", "score": earlier["score"]}
            item["reason"] = f"round {earlier['round']} answered it" if earlier["round"] > 0 else "another thread answered it"
            continue
        guess = node["guess_answer"]
        verdict = None
        if guess:
            ids = tuple(document.id for document in documents)
            found = prepared.get(ids) or prepared.setdefault(ids, Premises.of(documents, history))
            verdict = judge(guess, node["sub_question"], found, verifier, threshold)
        if verdict is not None and verdict.supported:
            item |= {"answer": without_marks(guess), "status": "kept", "score": verdict.score, "reason": verdict.quote}
            put_first(item, documents, verdict)
            continue
        if verdict is not None:
            item["score"] = verdict.score
        if documents and (here.documents or not here.error):
            item["reason"] = verdict.reason if verdict else "no guess"
            unsolved.append(index)
        elif here.error:
            item |= {"status": "failed", "reason": here.error}
        else:
            item["reason"] = "no evidence was found"
    return items, unsolved


def verify_answer(item: ChainItem, checked: Sequence[Checked], checker: Checker) -> tuple[list[ChainItem], list[int]]:
    """Judge an answer that was given at once: the chain that stands for it, and the indexes of the sentences that failed.

    The chain is the question itself with the answer as its guess; no item for small talk.
    """
    plain = " ".join(sentence.plain for sentence in checked)
    item = item | {"guess_answer": plain}
    claims = [sentence for sentence in checked if sentence.claims]
    if not checked:
        if not item["evidence"]:
            item["reason"] = item["reason"] or "no evidence was found"
            return [item], []
        return [item | {"reason": "no answer was given"}], [0]
    if not claims:
        if not any(holds_negation(sentence.plain) for sentence in checked):
            return [], []
        return [item | {"guess_answer": "", "reason": "the evidence holds no answer"}], []
    weakest = min(claims, key=lambda sentence: sentence.verdict.score)
    item["score"] = weakest.verdict.score
    cited = dict.fromkeys(str(checker.evidence[number - 1].id) for sentence in claims for number in sentence.cited)
    item["evidence"] = [*cited, *(id_ for id_ in item["evidence"] if id_ not in cited)]
    failed = [n for n, sentence in enumerate(checked) if not sentence.stands]
    if failed:
        item["reason"] = f"not verified: “{weakest.plain}” (score {weakest.verdict.score:.2f})"
        return [item], failed
    return [item | {"answer": plain, "status": "kept", "reason": weakest.verdict.quote}], []


def _paths(documents: Sequence[Document]) -> dict[str, list[str]]:
    """How documents were reached by way of others."""
    paths = {str(document.id): document.metadata.get("graph_path") for document in documents}
    return {name: [str(step) for step in path] for name, path in paths.items() if isinstance(path, list) and len(path) > 2}


def _question_item(parts: GraphParts, state: ConvCoAState, evidence: Evidence) -> ChainItem:
    """The question itself as an item of the chain, before it is judged."""
    found = evidence.found[LOOKED]
    item: ChainItem = {
        "action": found.action or next(iter(parts.actions.actions)),
        "sub_question": state["plan"]["optimized_question"],
        "guess_answer": "",
        "action_input": "",
        "answer": "",
        "status": "failed" if found.error and not found.documents else "unsupported",
        "score": 0.0,
        "reason": found.error,
        "evidence": [str(document.id) for document in found.documents],
    }
    if paths := _paths(found.documents):
        item["paths"] = paths
    return item


def judge(answer: str, question: str, evidence: Premises, verifier: Verifier, threshold: float | None) -> Verdict:
    """The verdict on an answer to a sub-question."""
    return verdicts.judge([as_claim(without_marks(answer), question)], evidence, verifier, threshold)[0]


def put_first(item: ChainItem, documents: Sequence[Document], verdict: Verdict) -> None:
    """The document that supports the answer leads the item's evidence."""
    first = next((number for number in verdict.documents if number < len(documents)), None)
    if first is not None:
        id_ = str(documents[first].id)
        item["evidence"] = [id_, *(other for other in item["evidence"] if other != id_)]


def _with_memory(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> tuple[list[Finding], int]:
    """The turn's findings with recalled evidence, and with earlier evidence in the weakest's place: (findings, reused).

    What an `always_fresh` action found stays as it is.
    """
    plan = state["plan"]

    def question(finding: Finding) -> str | None:
        if finding["index"] < 0:
            return plan["optimized_question"] if finding["depth"] else None
        if finding["index"] >= len(plan["nodes"]):
            return None
        node = plan["nodes"][finding["index"]]
        return None if parts.actions.always_fresh(node["action"]) else node["sub_question"]

    given = [*state["findings"], *looked_up(state)]
    asked, leans = [question(finding) for finding in given], not plan["self_contained"]
    findings, reused = with_earlier_evidence(parts.memory, settings, state, given, asked, leans=leans)
    fresh = {str(document.id): document for finding in findings for document in finding["documents"]}
    for answer in still_recalled(state):
        documents = [_whole(document, fresh) for document in answer["documents"]]
        findings.append(
            {"index": answer["index"], "depth": 1, "documents": documents, "error": "", "repairable": False, "seconds": 0.0}
        )
    return findings, reused


def _whole(document: Document, fresh: Mapping[str, Document]) -> Document:
    """The whole text of a recalled quote, if another sub-question has just found it: an id means one text in a turn."""
    other = fresh.get(str(document.id))
    return other if other is not None and document.page_content in other.page_content else document
