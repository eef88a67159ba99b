from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa import ChatModelReasoner
from langgraph_convcoa.chain import ChainItem, Status
from langgraph_convcoa.reasoning.base import AnswerRequest, CorrectRequest, PlanRequest, Unsolved
from tests.fakes import ScriptedModel, corrections, node, plan

EVIDENCE = [Document(f"Text {n}.", id=f"d{n}", metadata={"source": f"s{n}", "quote": f"Quote {n}."}) for n in range(5)]


def reasoner(*replies: str) -> tuple[ChatModelReasoner, ScriptedModel]:
    model = ScriptedModel(replies=list(replies))
    return ChatModelReasoner(model), model


def item(status: Status, answer: str, evidence: list[str], **more: Any) -> ChainItem:
    base: ChainItem = {
        "action": "a", "sub_question": "s?", "guess_answer": "", "action_input": "", "answer": answer,
        "status": status, "score": 0.5, "reason": "", "evidence": evidence,
    }  # fmt: skip
    return {**base, **more}  # type: ignore[typeddict-item]


def test_the_first_round_and_the_later_ones_have_their_prompts() -> None:
    ours, model = reasoner(plan(node("s?")), plan(node("s?")))
    ours.plan(PlanRequest("q?", {"docs": "looks up documents", "web": "searches"}, max_sub_questions=3, language="German"))
    ours.plan(PlanRequest("q?", {"docs": "d"}, knowledge='{"Contextual knowledge set": []}'))
    first, second = model.prompts
    assert "- docs: looks up documents\n- web: searches" in first
    assert "at most 3 steps" in first
    assert "in German" in first
    assert "[Contextual knowledge set]" in second
    assert "[Contextual knowledge set]" not in first


def test_plain_and_async_do_the_same() -> None:
    request = PlanRequest("q?", {"docs": "d"})
    ours, _ = reasoner("prose", plan(node("s?")))
    plain = ours.plan(request)
    ours, model = reasoner("prose", plan(node("s?")))
    assert asyncio.run(ours.aplan(request)) == plain
    assert len(model.prompts) == 2


def test_corrections_carry_their_index_and_missing_ones_are_left_out() -> None:
    ours, model = reasoner(corrections("a1", "a2"))
    items = [Unsolved(0, "first?", "wrong", EVIDENCE[:1]), Unsolved(3, "fourth?", "", EVIDENCE[1:2])]
    found = ours.correct(CorrectRequest("q?", items))
    assert [(c.index, c.answer) for c in found] == [(0, "a1")]
    assert "[Sub-question 1]: first?\nGuess that was not borne out: wrong" in model.prompts[0]
    assert "[Sub-question 4]: fourth?\n<evidence-" in model.prompts[0]


def test_the_answer_sees_quotes_and_cites_only_what_it_saw() -> None:
    ours, model = reasoner("A [5]. B [1]. C [2].")
    chain = [
        item("kept", "An answer.", ["d4", "d0"]),
        item("failed", "", [], reason="no result within 5 s"),
        item("unsupported", "", []),
    ]
    answer = ours.answer(AnswerRequest("q?", "optimized?", chain, EVIDENCE))
    assert (answer.text, list(answer.cited), answer.removed_citations) == ("A [1]. B [2]. C.", [4, 0], 1)
    prompt = model.prompts[0]
    assert "Quote 4." in prompt
    assert "Text 4." not in prompt
    assert "Quote 2." not in prompt
    assert "Understood as: optimized?" in prompt
    assert "An answer. [5][1]" in prompt
    assert "could not be looked up: no result within 5 s" in prompt
    assert "the evidence holds no answer" in prompt


def test_an_empty_chain_shows_whole_passages() -> None:
    ours, model = reasoner("A [3].")
    answer = ours.answer(AnswerRequest("q?", "q?", [], EVIDENCE))
    assert "Text 2." in model.prompts[0]
    assert list(answer.cited) == [2]
    assert "Understood as" not in model.prompts[0]
