"""The node `correct`: one model call for all that verification did not settle, which writes the final answer too."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.chain import SOLVED, ChainItem, Status
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors.redaction import secrets_of
from langgraph_convcoa.nodes.decisions import ANSWER, CORRECT
from langgraph_convcoa.nodes.drafts import Checked, Checker, SentenceGate, with_marks
from langgraph_convcoa.nodes.evidence import Evidence, evidence_of
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit_progress, is_followed, show
from langgraph_convcoa.nodes.verify import judge, put_first
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, Unsolved
from langgraph_convcoa.reasoning.models import ModelCallError
from langgraph_convcoa.state import ConvCoAState, pairs_of
from langgraph_convcoa.text.citations import without_marks
from langgraph_convcoa.text.clean import cut_answer, cut_field
from langgraph_convcoa.text.words import content_words
from langgraph_convcoa.verification.premise import Evidence as Premises
from langgraph_convcoa.verification.sentences import is_sentence
from langgraph_convcoa.verification.verifier import Verifier

SWITCHED_OFF = "corrections are switched off"
STANDS_IN = "the best evidence stands in"
_SENTENCES_TRIED, _LONGEST_STAND_IN = 10, 300
_LIST_MARK = re.compile(r"(?:[-*•]|\d{1,2}[.)])\s+")


def correct(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """One model call for all of a turn; if it fails, the best sentence of the evidence stands in."""
    inner, work = parts.counting("correct", config), _Work(parts, state, parts.settings(runtime), config)
    corrected, failure, error = Corrected(), SWITCHED_OFF, ""
    if work.settings.max_corrections:
        try:
            corrected, failure = work.reasoner.correct(work.request, inner), ""
        except Exception as raised:  # noqa: BLE001 - what cannot be mended is raised again
            corrected, failure, error = work.without_model(raised)
    return work.update(corrected, failure, error)


async def acorrect(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """As `correct`; prompts are made, and the answer is verified, in threads."""
    inner = parts.counting("correct", config)
    work = await asyncio.to_thread(_Work, parts, state, parts.settings(runtime), config)
    corrected, failure, error = Corrected(), SWITCHED_OFF, ""
    if work.settings.max_corrections:
        try:
            corrected, failure = await work.reasoner.acorrect(work.request, inner), ""
        except Exception as raised:  # noqa: BLE001 - as above
            corrected, failure, error = await asyncio.to_thread(work.without_model, raised)
    return await asyncio.to_thread(work.update, corrected, failure, error)


class _Work:
    """What the node does before its model call and after it."""

    def __init__(self, parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext, config: RunnableConfig) -> None:
        self._parts, self._state, self.settings, self._config = parts, state, settings, config
        self._evidence, self._checker = evidence_of(state["findings"]), parts.checker(state, settings)
        reply, plan = state["reply"], state["plan"]
        self._drafted = self._checker.check(plan["draft_answer"]) if is_direct(state, settings) else []
        self._gate: SentenceGate | None = None
        hidden = reply["shown"] or {CORRECT, ANSWER} & {*state["approve"]}
        if is_followed(config) and not self._drafted and not hidden:
            self._gate = SentenceGate(lambda: self._checker, show, message_id=reply["message_id"])
        # A model that was down for the plan is not asked again in this turn.
        self.reasoner = parts.without_model if reply["error"] else parts.reasoner("correct", settings)
        self.request = CorrectRequest(
            question=state["asked"],
            items=self._open_sentences() if self._drafted else self._open_items(),
            optimized_question=plan["optimized_question"],
            chain=state["items"],
            evidence=self._evidence.documents,
            draft=[sentence.plain for sentence in self._drafted],
            history=pairs_of(state),
            knowledge=state["knowledge_view"],
            language=settings.language,
            gate=self._gate,
        )

    def without_model(self, error: Exception) -> tuple[Corrected, str, str]:
        """What stands in for a call that failed: (corrections, why there are none, the error that the answer names).

        An error is raised again if nothing can stand in for the answer, or its beginning has been seen.
        """
        shown = self._gate is not None and self._gate.shown
        if self.settings.quote_without_model and isinstance(error, ModelCallError) and not shown and not self._drafted:
            return self._parts.without_model.correct(self.request), "", str(error)
        if shown or not self.request.items:
            raise error
        return Corrected(), reason_of(error, secrets_of(self.reasoner)), ""

    def update(self, corrected: Corrected, failure: str, error: str) -> Update:
        """The chain and the answer with the corrections."""
        state, reply = self._state, self._state["reply"]
        corrections = [
            replace(given, answer=cut_field(given.answer), reason=cut_field(given.reason)) for given in corrected.corrections
        ]
        confirmed: list[str] = []
        if self._drafted:
            items, text, confirmed = apply_to_answer(state["items"], self._drafted, corrections, failure, self._checker)
        else:
            verifier, threshold = self._parts.verifier, self.settings.threshold
            items = apply_corrections(
                state["items"], self.request.items, corrections, failure, self._evidence, verifier, threshold
            )
            text = cut_answer(corrected.answer)
            if any(item["status"] in SOLVED for item in items) and not _says(self._checker.check(text)):
                text = ""
        for index, item in enumerate(items):
            if self._drafted or index in state["unsolved"]:
                emit_progress(index, item, item["status"], item["score"], item["reason"])
        reply = {**reply, "text": text, "confirmed": confirmed, "error": error or reply["error"]}
        if self._gate is not None:
            reply |= {"shown": self._gate.shown, "message_id": self._gate.message_id}
        costs = self._parts.costs("correct", self._config)
        return {"items": items, "unsolved": [], "reply": reply, "origin": "correct", "costs": costs}

    def _open_sentences(self) -> list[Unsolved]:
        """The sentences that failed, each with the evidence that the model wrote it from."""
        question, evidence = self._state["plan"]["optimized_question"], self._evidence.documents
        return [
            Unsolved(n, question, sentence.plain, [evidence[number - 1] for number in sentence.named])
            for n, sentence in enumerate(self._drafted)
            if n in self._state["unsolved"]
        ]

    def _open_items(self) -> list[Unsolved]:
        found, looked = self._evidence.found, self._evidence.looked
        return [
            Unsolved(index, item["sub_question"], item["guess_answer"], found[index].documents or looked)
            for index, item in enumerate(self._state["items"])
            if index in self._state["unsolved"]
        ]


def _says(answer: Sequence[Checked]) -> bool:
    """Whether one sentence of an answer stands that is more than a word; models may write nonsense."""
    return any(sentence.verdict.supported or (sentence.stands and " " in sentence.plain) for sentence in answer)


def is_direct(state: ConvCoAState, settings: ConvCoAContext) -> bool:
    """Whether the planner gave the answer at once, so that only its failed sentences are open."""
    plan = state["plan"]
    return not plan["nodes"] and bool(plan["draft_answer"].strip()) and bool(state["unsolved"]) and settings.allow_draft_answer


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
