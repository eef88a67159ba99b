"""The node `correct`: the model call after verification answers all that is open and writes the final answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.chain import SOLVED, ChainItem, Status
from langgraph_convcoa.errors import ModelError, secrets_of
from langgraph_convcoa.nodes.runtime import emit_status
from langgraph_convcoa.nodes.verify import check_guess, put_first, score_claims
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, Unsolved
from langgraph_convcoa.state import (
    LOOKED,
    ConvCoAState,
    GraphParts,
    TurnEvidence,
    TurnRuntime,
    Update,
    merge_findings,
    pairs_of,
    question_of,
)
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.clean import cut_answer, cut_field
from langgraph_convcoa.text.words import LIST_MARK, STOPS, content_words
from langgraph_convcoa.verification.answer_check import CheckedSentence, Checker, with_marks
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import is_sentence
from langgraph_convcoa.verification.verifier import Verifier

_SWITCHED_OFF = "corrections are switched off"
STANDS_IN = "the best evidence stands in"
_LIST_MARK = re.compile(rf"{LIST_MARK}\s+")


def correct(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Ask the model once; if the call fails, the best sentence of the evidence stands in."""
    call = _CorrectCall(parts, state, config, runtime)
    if not call.settings.max_corrections:
        return call.update(Corrected(), _SWITCHED_OFF)
    try:
        corrected = call.reasoner.correct(call.request, config)
    except Exception as error:  # noqa: BLE001 - an error without a substitute is raised again
        return call.without_model(error)
    return call.update(corrected)


async def acorrect(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `correct`. Threads make the prompt and verify the answer."""
    call = await asyncio.to_thread(_CorrectCall, parts, state, config, runtime)
    if not call.settings.max_corrections:
        return await asyncio.to_thread(call.update, Corrected(), _SWITCHED_OFF)
    try:
        corrected = await call.reasoner.acorrect(call.request, config)
    except Exception as error:  # noqa: BLE001 - as above
        return await asyncio.to_thread(call.without_model, error)
    return await asyncio.to_thread(call.update, corrected)


class _CorrectCall:
    """The request of `correct`, and the update made from its reply.

    The open items are the failed sentences if the planner answered at once, and otherwise items of the chain.
    """

    def __init__(self, parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> None:
        self._parts, self._state = parts, state
        self.settings = settings = parts.settings(runtime)
        self._evidence, self._checker = merge_findings(state["findings"]), parts.checker(state, settings)
        plan, reply = state["plan"], state["reply"]
        direct = not plan["nodes"] and bool(state["unsolved"]) and settings.allow_draft_answer
        self._draft = self._checker.check(plan["draft_answer"]) if direct else []
        streams = not self._draft and not reply["shown"]
        # A model that was down for the plan is not asked again in this turn.
        self.reasoner = parts.without_model if reply["error"] else parts.reasoner("correct", settings)
        self.request = CorrectRequest(
            question=question_of(state),
            items=self._open_sentences() if self._draft else self._open_items(),
            optimized_question=plan["optimized_question"],
            chain=state["items"],
            evidence=self._evidence.documents,
            draft=[sentence.plain for sentence in self._draft],
            history=pairs_of(state),
            knowledge=state["knowledge_view"],
            language=settings.language,
            gate=parts.gate(state, settings, config, {"correct", "answer"}) if streams else None,
        )

    def without_model(self, error: Exception) -> Update:
        """Answer with quotes or the best evidence; raise the error if nothing can stand in, or a sentence was streamed."""
        shown = self.request.gate is not None and self.request.gate.shown
        if self.settings.quote_without_model and isinstance(error, ModelError) and not shown and not self._draft:
            return self.update(self._parts.without_model.correct(self.request), error=str(error))
        if shown or not self.request.items:
            raise error
        return self.update(Corrected(), reason_of(error, secrets_of(self.reasoner)))

    def update(self, corrected: Corrected, failure: str = "", error: str = "") -> Update:
        """The corrected chain and answer. `failure` says why there are no corrections, `error` why the answer is quotes."""
        state, checker = self._state, self._checker
        given = [replace(one, answer=cut_field(one.answer), reason=cut_field(one.reason)) for one in corrected.corrections]
        confirmed: list[str] = []
        if self._draft:
            items, text, confirmed = apply_to_answer(state["items"], self._draft, given, failure, checker)
        else:
            verifier, threshold = self._parts.verifier, self.settings.threshold
            items = apply_corrections(state["items"], self.request.items, given, failure, self._evidence, verifier, threshold)
            text = cut_answer(corrected.answer)
            # Models may write nonsense: a sentence says something if it is supported, or stands and has several words.
            says = any(one.verdict.supported or (one.stands and " " in one.plain) for one in checker.check(text))
            if not says and any(item["status"] in SOLVED for item in items):
                text = ""
        for index, item in enumerate(items):
            if self._draft or index in state["unsolved"]:
                emit_status(index, item)
        reply = {**state["reply"], "text": text, "confirmed": confirmed, "error": error or state["reply"]["error"]}
        if gate := self.request.gate:
            reply |= {"shown": gate.shown, "message_id": gate.message_id}
        return {"items": items, "unsolved": [], "reply": reply}

    def _open_sentences(self) -> list[Unsolved]:
        """The sentences that failed, each with the evidence that it cites."""
        question, evidence = self._state["plan"]["optimized_question"], self._evidence.documents
        return [
            Unsolved(n, question, sentence.plain, [evidence[number - 1] for number in sentence.named])
            for n, sentence in enumerate(self._draft)
            if n in self._state["unsolved"]
        ]

    def _open_items(self) -> list[Unsolved]:
        found, looked = self._evidence.found, self._evidence.found[LOOKED].documents
        return [
            Unsolved(index, item["sub_question"], item["guess_answer"], found[index].documents or looked)
            for index, item in enumerate(self._state["items"])
            if index in self._state["unsolved"]
        ]


def apply_corrections(
    items: Sequence[ChainItem],
    unsolved: Sequence[Unsolved],
    corrections: Sequence[Correction],
    failure: str,
    evidence: TurnEvidence,
    verifier: Verifier,
    threshold: float | None = None,
) -> list[ChainItem]:
    """The chain with its corrections; the best evidence stands in for a missing one (Pan et al. 2024a, algorithm 1)."""
    given = {correction.index: correction for correction in corrections}
    result = [item.copy() for item in items]
    for open_item in unsolved:
        item = result[open_item.index]
        correction = given.get(open_item.index)
        if correction is None:
            correction = _stand_in(open_item, failure)
        if not correction.supported:
            item |= {"answer": "", "status": "unsupported", "reason": correction.reason or "the evidence holds no answer"}
            continue
        answer = without_marks(correction.answer)
        named = [evidence.documents[number - 1] for number in correction.evidence if number <= len(evidence.documents)]
        documents = [*named, *(document for document in open_item.evidence if document not in named)]
        verdict = check_guess(answer, open_item.sub_question, Evidence.of(documents), verifier, threshold)
        kept = _same(answer, open_item.guess_answer)
        status: Status = "confirmed" if kept else "corrected" if open_item.guess_answer else "filled"
        item |= {
            "answer": answer,
            "status": "partial" if correction.partial else status,
            "score": verdict.score if correction.score is None else correction.score,
            "reason": correction.reason or verdict.quote,
        }
        if named:
            item["evidence"] = list(dict.fromkeys([*(str(document.id) for document in named), *item["evidence"]]))
        else:
            put_first(item, documents, verdict)
    return result


def _stand_in(open_item: Unsolved, failure: str) -> Correction:
    """The sentence of the evidence that is closest to the sub-question, as a correction. Titles and headings are no sentences.

    The correction is partial, so that no later turn recalls it as an answer.
    """
    evidence = Evidence.of(open_item.evidence)
    quotes = [str(document.metadata.get("quote") or "") for document in open_item.evidence]
    texts = [*evidence.quotes(open_item.sub_question)[:1], *quotes, *(piece.text for piece in evidence.pieces)]
    answer = without_marks(next((text for text in texts if not _is_heading(text, open_item.evidence)), ""))
    if not answer:
        return Correction(open_item.index, "", "no sentence of the evidence is an answer", supported=False)
    reason = f"{STANDS_IN}: {failure or 'the model gave no answer to this sub-question'}"
    return Correction(open_item.index, answer, reason, partial=True)


def apply_to_answer(
    items: Sequence[ChainItem],
    draft: Sequence[CheckedSentence],
    corrections: Sequence[Correction],
    failure: str,
    checker: Checker,
) -> tuple[list[ChainItem], str, list[str]]:
    """Confirm, correct or remove the failed sentences of an answer: (its chain, the answer, the confirmed sentences)."""
    given = {correction.index: correction for correction in corrections}
    written, changed = "", False
    confirmed: list[str] = []
    for n, sentence in enumerate(draft):
        text = sentence.text
        if not sentence.stands:
            correction = given.get(n)
            if correction is None or not correction.supported or not correction.answer.strip():
                changed = True
                continue
            # Only the first line: the model may repeat the next lines of the draft.
            plain = without_marks(correction.answer).strip().split("\n")[0].rstrip()
            list_mark = _LIST_MARK.match(sentence.plain)
            if list_mark and not _LIST_MARK.match(plain):
                plain = list_mark[0] + plain
            if _same(plain, sentence.plain):
                confirmed.append(plain)
            else:
                changed = True
            text = with_marks(plain, list(dict.fromkeys(correction.evidence))[:3])
        before = sentence.before or (" " if written else "")
        written += (before if written else before.lstrip()) + text
    checked, item = checker.check(written, confirmed), items[0].copy()
    if not any(sentence.claims for sentence in checked):
        reason = f"it could not be corrected: {failure}" if failure else "the evidence holds no answer"
        return [item | {"answer": "", "status": "unsupported", "reason": reason}], "", []
    score_claims(item, checked, checker)
    if failure:
        reason = f"what was not verified is left out: {failure}"
    else:
        reason = "corrected" if changed else "the verifier refused it, the model confirmed it"
    status: Status = "corrected" if changed else "confirmed"
    item |= {"answer": " ".join(sentence.plain for sentence in checked), "status": status, "reason": reason}
    return [item], written, confirmed


def _same(answer: str, guess: str) -> bool:
    return "".join(answer.split()).casefold().rstrip(".") == "".join(guess.split()).casefold().rstrip(".")


def _is_heading(text: str, evidence: Sequence[Document]) -> bool:
    """True for a title, a question, or a line that is no sentence, except a line from the result of a query."""
    plain = text.strip()
    if not plain or plain.startswith("#"):
        return True
    words = set(content_words(plain))
    if any(words <= set(content_words(str(document.metadata.get("title") or ""))) for document in evidence):
        return True
    if any("query" in document.metadata and plain in document.page_content for document in evidence):
        return False
    return plain[-1] in "?？" or (plain[-1] not in f"{STOPS}…" and not is_sentence(plain))
