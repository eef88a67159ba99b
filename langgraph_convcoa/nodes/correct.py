"""The node `correct`: one model call for all that verification did not settle, which writes the final answer too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.chain import SOLVED, ChainItem, Status
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors.redaction import secrets_of
from langgraph_convcoa.nodes.drafts import Checked, Checker, SentenceGate, with_marks
from langgraph_convcoa.nodes.review import ANSWER, CORRECT
from langgraph_convcoa.nodes.runtime import Call, Evidence, Steps, TurnRuntime, emit_progress, evidence_of
from langgraph_convcoa.nodes.verify import judge, put_first
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, Unsolved
from langgraph_convcoa.state import ConvCoAState, pairs_of
from langgraph_convcoa.text.citations import without_marks
from langgraph_convcoa.text.clean import cut_answer, cut_field
from langgraph_convcoa.text.words import content_words
from langgraph_convcoa.verification.premise import Evidence as Premises
from langgraph_convcoa.verification.sentences import is_sentence
from langgraph_convcoa.verification.verifier import Verifier

STANDS_IN = "the best evidence stands in"
_SENTENCES_TRIED, _LONGEST_STAND_IN = 10, 300
_LIST_MARK = re.compile(r"(?:[-*•]|\d{1,2}[.)])\s+")


def correct(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """One model call for all of a turn; where it fails, the best sentence of the evidence stands in."""
    settings, evidence = turn.settings(), evidence_of(state["findings"])
    checker = turn.checker(state)
    drafted = checker.check(state["plan"]["draft_answer"]) if is_direct(state, settings) else []
    unsolved = _open_sentences(state, drafted, evidence.documents) if drafted else _open_items(state, evidence)
    gate = None
    if not drafted and not state["shown"] and not {CORRECT, ANSWER} & {*state["approve"]}:
        gate = SentenceGate(lambda: checker, message_id=state["final_message_id"])
    corrected, failure = Corrected(), "corrections are switched off"
    if settings.max_corrections:
        reasoner = turn.reasoner("correct")
        request = CorrectRequest(
            question=state["asked"],
            items=unsolved,
            optimized_question=state["plan"]["optimized_question"],
            chain=state["items"],
            evidence=evidence.documents,
            draft=[sentence.plain for sentence in drafted],
            history=pairs_of(state),
            knowledge=state["knowledge_view"],
            language=settings.language,
            gate=gate,
        )
        try:
            corrected = _cleaned((yield Call(reasoner.correct, reasoner.acorrect, (request, config))))
            failure = ""
        except Exception as error:
            if not unsolved or (gate is not None and gate.shown):
                # Nothing could stand in for the answer, or its beginning has been seen.
                raise
            failure = reason_of(error, secrets_of(reasoner))
    confirmed: list[str] = []
    if drafted:
        items, written, confirmed = apply_to_answer(state["items"], drafted, corrected.corrections, failure, checker)
    else:
        items = apply_corrections(
            state["items"], unsolved, corrected.corrections, failure, evidence, turn.verifier, settings.threshold
        )
        solved = any(item["status"] in SOLVED for item in items)
        written = corrected.answer if not solved or _says(checker.check(corrected.answer)) else ""
    for index, item in enumerate(items):
        if drafted or index in state["unsolved"]:
            emit_progress(index, item, item["status"], item["score"], item["reason"])
    shown = {} if gate is None else {"shown": gate.shown, "final_message_id": gate.message_id}
    return {"items": items, "unsolved": [], "written": written, "confirmed": confirmed, **shown}


def _cleaned(corrected: Corrected) -> Corrected:
    """What a reasoner gave, as text that can be kept and shown."""
    corrections = [
        replace(given, answer=cut_field(given.answer), reason=cut_field(given.reason)) for given in corrected.corrections
    ]
    return Corrected(corrections, cut_answer(corrected.answer))


def _says(answer: Sequence[Checked]) -> bool:
    """Whether one sentence of an answer stands that is more than a word; models may write nonsense."""
    return any(sentence.verdict.supported or (sentence.stands and " " in sentence.plain) for sentence in answer)


def is_direct(state: ConvCoAState, settings: ConvCoAContext) -> bool:
    """Whether the planner gave the answer at once, so that only its failed sentences are open."""
    plan = state["plan"]
    return not plan["nodes"] and bool(plan["draft_answer"].strip()) and bool(state["unsolved"]) and settings.allow_draft_answer


def _open_sentences(state: ConvCoAState, drafted: Sequence[Checked], evidence: Sequence[Document]) -> list[Unsolved]:
    """The sentences that failed, each with the evidence that the model wrote it from."""
    question = state["plan"]["optimized_question"]
    return [
        Unsolved(n, question, drafted[n].plain, [evidence[number - 1] for number in drafted[n].named])
        for n in state["unsolved"]
        if n < len(drafted)
    ]


def _open_items(state: ConvCoAState, evidence: Evidence) -> list[Unsolved]:
    opened = [(index, state["items"][index]) for index in state["unsolved"] if index < len(state["items"])]
    return [
        Unsolved(index, item["sub_question"], item["guess_answer"], evidence.found[index].documents or evidence.looked)
        for index, item in opened
    ]


def apply_corrections(
    items: Sequence[ChainItem],
    unsolved: Sequence[Unsolved],
    corrections: Sequence[Correction],
    failure: str,
    evidence: Evidence,
    verifier: Verifier,
    threshold: float | None = None,
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
            answer = without_marks(_best_sentence(open_item))
            if not answer:
                item |= {"answer": "", "status": "unsupported", "reason": "no sentence of the evidence is an answer"}
                continue
            reason = f"{STANDS_IN}: {failure or 'the model gave no answer to this sub-question'}"
            named: list[Document] = []
        else:
            answer, reason = without_marks(correction.answer), correction.reason
            named = [evidence.documents[number - 1] for number in correction.evidence if number <= len(evidence.documents)]
        documents = [*named, *(document for document in open_item.evidence if document not in named)]
        verdict = judge(answer, open_item.sub_question, Premises.of(documents), verifier, threshold)
        kept = _same(answer, open_item.guess_answer)
        status: Status = "confirmed" if kept else "corrected" if open_item.guess_answer else "filled"
        item |= {
            "answer": answer,
            # A sentence of a document that nobody took for the answer is the nearest fact, and is not recalled as one.
            "status": "partial" if correction is None or correction.partial else status,
            "score": verdict.score if correction is None or correction.score is None else correction.score,
            "reason": reason or verdict.quote,
        }
        if named:
            first = [str(document.id) for document in named]
            item["evidence"] = [*first, *(id_ for id_ in item["evidence"] if id_ not in first)]
        else:
            put_first(item, documents, verdict)
    return result


def apply_to_answer(
    items: Sequence[ChainItem],
    drafted: Sequence[Checked],
    corrections: Sequence[Correction],
    failure: str,
    checker: Checker,
) -> tuple[list[ChainItem], str, list[str]]:
    """An answer whose failed sentences are confirmed, corrected or taken out: (its chain, the answer, what was confirmed)."""
    given = {correction.index: correction for correction in corrections}
    written, changed = "", False
    confirmed: list[str] = []
    for n, sentence in enumerate(drafted):
        text = sentence.text
        if not sentence.stands:
            correction = given.get(n)
            if correction is None or not correction.supported or not correction.answer.strip():
                changed = True
                continue
            # A sentence is of one line; what a model repeats of the lines below it stands there already.
            plain = without_marks(correction.answer).strip().split("\n")[0].rstrip()
            item_mark = _LIST_MARK.match(sentence.plain)
            if item_mark and not _LIST_MARK.match(plain):
                plain = item_mark[0] + plain
            if _same(plain, sentence.plain):
                confirmed.append(plain)
            else:
                changed = True
            text = with_marks(plain, list(dict.fromkeys(correction.evidence))[:3])
        before = sentence.before or (" " if written else "")
        written += (before if written else before.lstrip()) + text
    checked = replace(checker, confirmed=frozenset(confirmed), _known={}).check(written)
    claims = [sentence for sentence in checked if sentence.claims]
    item = items[0].copy()
    if not claims:
        reason = failure and f"it could not be corrected: {failure}"
        return [item | {"answer": "", "status": "unsupported", "reason": reason or "the evidence holds no answer"}], "", []
    weakest = min(claims, key=lambda sentence: sentence.verdict.score)
    cited = dict.fromkeys(str(checker.evidence[number - 1].id) for sentence in claims for number in sentence.cited)
    told = "corrected" if changed else "the verifier refused it, the model confirmed it"
    if failure:
        told = "what was not verified is left out"
    item |= {
        "answer": " ".join(sentence.plain for sentence in checked),
        "status": "corrected" if changed else "confirmed",
        "score": weakest.verdict.score,
        "reason": f"{told}: {failure}" if failure else told,
        "evidence": [*cited, *(id_ for id_ in item["evidence"] if id_ not in cited)],
    }
    return [item], written, confirmed


def _same(answer: str, guess: str) -> bool:
    return "".join(answer.split()).casefold().rstrip(".") == "".join(guess.split()).casefold().rstrip(".")


def _best_sentence(open_item: Unsolved) -> str:
    """The sentence of the evidence that is closest to the sub-question; "" where only titles and headings are."""
    closest = Premises.of(open_item.evidence).quotes(open_item.sub_question)
    quotes = [*closest[:1], *(str(document.metadata.get("quote") or "") for document in open_item.evidence)]
    texts = [text for document in open_item.evidence for text in _first_sentences(document)]
    return next((text for text in (*quotes, *texts) if not _is_heading(text, open_item.evidence)), "")


def _first_sentences(document: Document) -> list[str]:
    """The first sentences of a document; of the result of a query its beginning, which need not be one."""
    if "query" in document.metadata:
        return [document.page_content[:_LONGEST_STAND_IN]]
    return [piece.text[:_LONGEST_STAND_IN] for piece in Premises.of([document]).pieces[:_SENTENCES_TRIED]]


def _is_heading(text: str, evidence: Sequence[Document]) -> bool:
    """Whether a text is a title, or a line that is no sentence; the result of a query need be none."""
    plain = text.strip()
    if not plain or plain.startswith("#"):
        return True
    words = set(content_words(plain))
    if any(words <= set(content_words(str(document.metadata.get("title") or ""))) for document in evidence):
        return True
    if any("query" in document.metadata and plain in document.page_content for document in evidence):
        return False
    return plain[-1] in "?？" or (plain[-1] not in ".!。！…" and not is_sentence(plain))


def numbers_of(evidence: Sequence[Document]) -> Mapping[str, int]:
    """The number under which each document is cited."""
    return {str(document.id): number for number, document in enumerate(evidence, 1)}
