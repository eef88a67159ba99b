"""The nodes after the look-ups: `verify` judges, without a model call; `correct` asks the model for what is left open.

If the plan is a chain, its guesses are judged. If the planner answered at once, each sentence of the answer is judged.
`correct` answers open sub-questions and writes the answer, or corrects the refused sentences. A sub-question is "kept" if the
evidence supports its guess, and "filled" if it had none and `correct` answered it. `SOLVED`: statuses with an answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite

from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.chain import SOLVED, ChainItem, Status, chain_item
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import ModelError, secrets_of
from langgraph_convcoa.memory.evidence import RecalledAnswer
from langgraph_convcoa.nodes.plan import looked_up, still_recalled, with_earlier_evidence
from langgraph_convcoa.nodes.runtime import emit_status
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, History, Unsolved
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
    question_of,
)
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.clean import cut_answer, cut_field
from langgraph_convcoa.text.questions import holds_negation
from langgraph_convcoa.text.words import LIST_MARK, STOPS, content_words
from langgraph_convcoa.verification.answer_check import CheckedSentence, Checker, Verdict, as_claim, judge, with_marks
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import is_sentence
from langgraph_convcoa.verification.verifier import Verifier

_SWITCHED_OFF = "corrections are switched off"
STANDS_IN = "the best evidence stands in"
_LONGEST_SEARCH = 500  # Characters of the open sentences that are looked up once more.
_LIST_MARK = re.compile(rf"{LIST_MARK}\s+")


def verify(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Judge the guesses of a chain that are not recalled, or else the sentences of the planner's answer; no model call.

    A chain's draft answer is judged only if all items are kept or recalled. An answer that stands becomes the reply.
    """
    settings, plan = runtime.context, state["plan"]
    update: Update = {}
    if state["depth"] == 0:
        findings, reused = _with_memory(parts, state, settings)
        state = {**state, "findings": findings}
        update = {"findings": Overwrite(findings), "reused": state["reused"] + reused}
    evidence, checker = merge_findings(state["findings"]), parts.checker(state, settings)
    checked: list[CheckedSentence] = []
    refused: list[int] = []
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
        items = verify_answer(item, checked, checker)
        unsolved, refused = _unsolved_and_refused(state, settings, items, checked)
    is_whole = bool(checked) and all(sentence.stands for sentence in checked)
    stands = settings.allow_draft_answer and is_whole and not unsolved and not refused
    for index, item in enumerate(items):
        if index not in unsolved and not refused:
            emit_status(index, item)
    return {
        **update,
        "items": items,
        "unsolved": unsolved,
        "refused": refused,
        "searches": _searches(state, checked),
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


def verify_answer(item: ChainItem, checked: Sequence[CheckedSentence], checker: Checker) -> list[ChainItem]:
    """The chain of an answer given at once: one item, the question with the answer as its guess; no item for small talk."""
    plain = " ".join(sentence.plain for sentence in checked)
    item = item | {"guess_answer": plain}
    if not checked:
        return [item | {"reason": "no answer was given" if item["evidence"] else item["reason"] or "no evidence was found"}]
    if not any(sentence.claims for sentence in checked):
        silent = any(holds_negation(sentence.plain) for sentence in checked)
        return [item | {"guess_answer": "", "reason": "the evidence holds no answer"}] if silent else []
    weakest = score_claims(item, checked, checker)
    if not all(sentence.stands for sentence in checked):
        return [item | {"reason": f"not verified: “{weakest.plain}” (score {weakest.verdict.score:.2f})"}]
    return [item | {"answer": plain, "status": "kept", "reason": weakest.verdict.quote}]


def _unsolved_and_refused(
    state: ConvCoAState, settings: ConvCoAContext, items: Sequence[ChainItem], checked: Sequence[CheckedSentence]
) -> tuple[list[int], list[int]]:
    """What is open in an answer that the planner gave at once: (indexes of items, indexes of sentences).

    - ([0], []): `correct` writes the whole answer. The settings do not allow the planner's answer, or it is missing although
      there is evidence, or a second search found more for its open sentences.
    - ([], indexes): `correct` is asked about these sentences, which are refused.
    - ([], []): nothing is open.
    """
    refused = [n for n, sentence in enumerate(checked) if not sentence.stands]
    first = merge_findings([one for one in state["findings"] if one["depth"] < 2]).documents
    more_was_found = len(merge_findings(state["findings"]).documents) > len(first)
    is_missing = not checked and any(item["evidence"] for item in items)
    may_improve = more_was_found and (refused or any(sentence.is_gap for sentence in checked))
    writes_all = not settings.allow_draft_answer or is_missing or may_improve
    return ([0], []) if items and writes_all else ([], refused)


def score_claims(item: ChainItem, checked: Sequence[CheckedSentence], checker: Checker) -> CheckedSentence:
    """Give an item the score of the weakest claim, which is returned, and put the cited documents first in its evidence."""
    claims = [sentence for sentence in checked if sentence.claims]
    weakest = min(claims, key=lambda sentence: sentence.verdict.score)
    cited = [str(checker.evidence[number - 1].id) for sentence in claims for number in sentence.cited or sentence.named]
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


def _searches(state: ConvCoAState, checked: Sequence[CheckedSentence]) -> list[str]:
    """What to look up once more for an answer that is missing, refused or names a gap.

    These are the question as the planner restated it, and the open sentences of an answer that also claims something: they
    hold names that the first search brought. A text without new words is not looked up. An answer that a person approved, or
    of which a part was shown, is not looked up again.
    """
    open_sentences = [one.plain for one in checked if one.is_gap or not (one.stands or one.block)]
    is_settled = state["depth"] or state["plan"]["nodes"] or state["reply"]["shown"] or "plan" in state["approve"]
    if is_settled or (checked and not open_sentences):
        return []
    texts = [state["plan"]["optimized_question"]]
    if any(sentence.claims for sentence in checked):
        texts.append(" ".join(open_sentences)[:_LONGEST_SEARCH])
    known = set(content_words(question_of(state)))
    return [text for text in dict.fromkeys(texts) if not known.issuperset(content_words(text))]


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
    """Add recalled and earlier evidence to the findings; returns the findings and the number of earlier pieces."""
    # Findings of an `always_fresh` action do not change.
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
    """The request of `correct`, and the update made from its reply."""

    def __init__(self, parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> None:
        self._parts, self._state = parts, state
        self.settings = settings = runtime.context
        self._evidence, self._checker = merge_findings(state["findings"]), parts.checker(state, settings)
        plan, reply = state["plan"], state["reply"]
        draft = self._checker.check(plan["draft_answer"]) if settings.allow_draft_answer and not plan["nodes"] else []
        self._draft = draft if state.get("refused") else []
        # The plan's answer, if the model writes the whole answer again. The old answer is kept if the new one is not better.
        self._old = draft if not self._draft else []
        streams = not self._draft and not reply["shown"] and not any(sentence.claims for sentence in self._old)
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
        if not shown and self._old:
            return self.update(Corrected(), reason_of(error, secrets_of(self.reasoner)))
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
        verifier, threshold = self._parts.verifier, self.settings.threshold
        if self._draft:
            items, text, confirmed = apply_to_answer(state["items"], self._draft, given, failure, checker)
        elif self._old and not self._is_better(corrected):
            items, text = state["items"], state["plan"]["draft_answer"]
            if any(sentence.claims for sentence in self._old):
                items, text, _ = apply_to_answer(items, self._old, [], failure, checker)
        else:
            items = apply_corrections(state["items"], self.request.items, given, failure, self._evidence, verifier, threshold)
            text = cut_answer(corrected.answer)
            # A small model may write one word that means nothing. A longer answer that is refused is shown and marked.
            says = any(one.verdict.supported or " " in one.plain for one in checker.check(text))
            if not says and any(item["status"] in SOLVED for item in items):
                text = ""
        if not text and not given and self._draft + self._old:
            # Nothing of the answer stands, and no correction came: a quote stands in.
            question, documents = state["plan"]["optimized_question"], self._evidence.found[LOOKED].documents
            open_item = Unsolved(0, question, items[0]["guess_answer"], documents)
            items = apply_corrections(state["items"], [open_item], [], failure, self._evidence, verifier, threshold)
        for index, item in enumerate(items):
            if self._draft or index in state["unsolved"]:
                emit_status(index, item)
        reply = {**state["reply"], "text": text, "confirmed": confirmed, "error": error or state["reply"]["error"]}
        if gate := self.request.gate:
            reply |= {"shown": gate.shown, "message_id": gate.message_id}
        return {"items": items, "unsolved": [], "refused": [], "reply": reply}

    def _is_better(self, corrected: Corrected) -> bool:
        """Whether the new answer says something. If all of the old answer stands, all of the new one must stand too."""
        new = self._checker.check(corrected.answer)
        says = any(one.supported for one in corrected.corrections)
        says = says or any(one.verdict.supported or " " in one.plain for one in new)
        had_all = all(one.stands for one in self._old) and any(one.claims for one in self._old)
        return says and (not had_all or all(one.stands for one in new))

    def _open_sentences(self) -> list[Unsolved]:
        question, evidence = self._state["plan"]["optimized_question"], self._evidence.documents
        return [
            Unsolved(n, question, sentence.plain, [evidence[number - 1] for number in sentence.named])
            for n, sentence in enumerate(self._draft)
            if n in self._state.get("refused", [])
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
    """The chain with its corrections; the best evidence replaces a missing correction (Pan et al. 2024a, algorithm 1)."""
    given = {correction.index: correction for correction in corrections}
    result = [item.copy() for item in items]
    for open_item in unsolved:
        item = result[open_item.index]
        correction = given.get(open_item.index) or _stand_in(open_item, failure)
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
    """Confirm, correct or remove the refused sentences of an answer: (its chain, the answer, the confirmed sentences)."""
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
    weakest = score_claims(item, checked, checker)
    status: Status = "corrected" if changed else "confirmed" if confirmed else "kept"
    reason = weakest.verdict.quote
    if changed:
        reason = f"what was not verified is left out: {failure}" if failure else "corrected"
    elif confirmed:
        reason = "the verifier refused it, the model confirmed it"
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
