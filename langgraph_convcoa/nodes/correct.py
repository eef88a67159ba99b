"""The node `correct`: one model call for every guess that its evidence does not support, and for what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.nodes.runtime import Call, Steps, TurnRuntime, by_index, emit_progress
from langgraph_convcoa.nodes.verify import judge, put_first
from langgraph_convcoa.reasoning.base import Correction, CorrectRequest, Unsolved
from langgraph_convcoa.state import ConvCoAState, pairs_of
from langgraph_convcoa.verification.mrfs import conv_mrfs


def correct(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """One model call for all of a turn; where it fails, the best sentence of the evidence stands in."""
    settings, found = turn.settings(), by_index(state["findings"])
    unsolved = [
        Unsolved(index, item["sub_question"], item["guess_answer"], found[index].documents)
        for index, item in ((index, state["items"][index]) for index in state["unsolved"])
    ]
    corrections: Sequence[Correction] = ()
    failure = "corrections are switched off"
    if settings.max_corrections:
        reasoner, question = turn.reasoner(), state["plan"]["optimized_question"]
        request = CorrectRequest(question, unsolved, history=pairs_of(state), language=settings.language)
        try:
            corrections = yield Call(reasoner.correct, reasoner.acorrect, (request, config))
            failure = ""
        except Exception as error:  # noqa: BLE001 - whatever a reasoner raises, the evidence stands in
            failure = reason_of(error)
    items = apply_corrections(state["items"], unsolved, corrections, failure, settings)
    for index in state["unsolved"]:
        emit_progress(index, items[index], items[index]["status"], items[index]["score"], items[index]["reason"])
    return {"items": items, "unsolved": []}


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
            answer = _best_sentence(open_item)
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
        put_first(item, open_item.evidence, verdict)
    return result


def _best_sentence(open_item: Unsolved) -> str:
    """The sentence of the evidence that is closest to the sub-question, else the best passage's quote."""
    verdict = conv_mrfs(open_item.sub_question, open_item.evidence)
    return verdict.quote or str(open_item.evidence[0].metadata.get("quote") or open_item.evidence[0].page_content[:300])
