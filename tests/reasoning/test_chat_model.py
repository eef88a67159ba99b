from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

from langchain_core.documents import Document

from langgraph_convcoa import ChatModelReasoner
from langgraph_convcoa.reasoning.base import CorrectRequest, PlanRequest, Unsolved
from langgraph_convcoa.reasoning.streaming import SentenceGate
from langgraph_convcoa.verification.answer_check import Checker
from tests.fakes import WORDS, ScriptedModel, corrections, node, plan
from tests.fakes import chain_item as item

EVIDENCE = [Document(f"Text {n}.", id=f"d{n}", metadata={"source": f"s{n}", "quote": f"Quote {n}."}) for n in range(5)]


def reasoner(*replies: str) -> tuple[ChatModelReasoner, ScriptedModel]:
    model = ScriptedModel(replies=list(replies))
    return ChatModelReasoner(model), model


def test_the_first_round_and_the_later_ones_have_their_prompts() -> None:
    ours, model = reasoner(plan(node("s?")), plan(node("s?")))
    ours.plan(PlanRequest("q?", {"docs": "looks up documents", "web": "searches"}, max_sub_questions=3, language="German"))
    ours.plan(PlanRequest("q?", {"docs": "d"}, knowledge="User: What is it?\nAssistant: A network."))
    first, second = model.prompts
    assert "- docs: looks up documents\n- web: searches" in first
    assert "at most 3 steps" in first
    assert "in German" in first
    assert "User: What is it?\nAssistant: A network." in second
    assert "Conversation" not in first


def test_over_evidence_the_front_of_the_prompt_is_the_same_in_every_turn() -> None:
    ours, model = reasoner(plan(), plan())
    ours.plan(PlanRequest("first?", {"docs": "d"}, evidence=EVIDENCE[:2]))
    ours.plan(PlanRequest("second?", {"docs": "d"}, knowledge="User: first?", evidence=EVIDENCE[3:]))
    first, second = model.prompts
    front = first[: first.index("Conversation")]
    assert len(front) > 600
    assert second.startswith(front)
    assert "[1] s0\nText 0.\n[2] s1\nText 1." in first
    assert second.endswith("Question: second?\n")


def test_over_evidence_the_prompt_says_what_to_do_with_half_of_an_answer() -> None:
    ours, model = reasoner(plan())
    ours.plan(PlanRequest("Where was the director born?", {"docs": "d"}, evidence=EVIDENCE[:2]))
    assert "or only its first step" in model.prompts[0]
    assert "a self-contained question for what is missing, with the names that the passages gave" in model.prompts[0]


def test_over_evidence_the_only_action_is_described_if_it_takes_an_input() -> None:
    ours, model = reasoner(*[plan()] * 3)
    sql = {"sales": "sales; action_input: one SELECT"}
    for actions in ({"docs": "looks up documents"}, sql, {"docs": "looks up documents", "web": "searches"}):
        ours.plan(PlanRequest("q?", actions, evidence=EVIDENCE))
    one, with_input, two = model.prompts
    assert '{"action": "docs", ' in one
    assert '"action_input": ""}' in one
    assert "looks up" not in one
    assert "- sales: sales; action_input: one SELECT" in with_input
    assert "- docs: looks up documents\n- web: searches" in two


def test_sub_questions_behind_an_answer_that_was_shown_are_dropped() -> None:
    ours, _ = reasoner(*[json.dumps({"final_answer": "Text 1 [2]. It is so.", "chain": [node("s?")]})] * 2)
    shown: list[str] = []
    gate = SentenceGate(Checker(EVIDENCE, [], WORDS), lambda text, _: shown.append(text))
    request = PlanRequest("q?", {"docs": "d"}, evidence=EVIDENCE)
    assert len(ours.plan(request).nodes) == 1
    assert not ours.plan(replace(request, gate=gate)).nodes
    assert shown[0].startswith("Text 1 [1].")


def test_a_check_shows_all_that_a_doubted_sentence_rests_on() -> None:
    first = "At the bottom lie samples, single recordings of sounds, " + "made at one rate or another, " * 2 + "of any kind."
    second = (
        "A sample may be any sound, a typewriter or a dog, " + "and so may what is heard of it in the street " * 3 + "too."
    )
    third = "Samples may be looped at points that somebody has set before, so that a short one plays endlessly, as organs do."
    other = "Its makers met in a small town and worked there for many years. " * 20
    doubted = "Samples are recordings of any sound, even a typewriter or a dog; looped, a short one plays endlessly."
    evidence = [Document(f"{first} {second} {other}{third} {other}", id="s")]
    ours, model = reasoner('{"answers": []}')
    ours.correct(CorrectRequest("What is notable?", [Unsolved(0, "q", doubted, ())], evidence=evidence, draft=[doubted]))
    assert all(part in model.prompts[0] for part in (first, second, third))


def test_plain_and_async_do_the_same() -> None:
    request = PlanRequest("q?", {"docs": "d"})
    ours, _ = reasoner("prose", plan(node("s?")))
    plain = ours.plan(request)
    ours, model = reasoner("prose", plan(node("s?")))
    assert asyncio.run(ours.aplan(request)) == plain
    assert len(model.prompts) == 2


def test_corrections_carry_their_index_and_missing_ones_are_left_out() -> None:
    ours, model = reasoner(corrections("a1", final="A [5]."))
    items = [Unsolved(0, "first?", "wrong", EVIDENCE[:1]), Unsolved(3, "fourth?", "", EVIDENCE[1:2])]
    request = CorrectRequest(
        "q?",
        items,
        chain=[
            item("unsupported", "", ["d0"], sub_question="first?", guess_answer="wrong"),
            item("kept", "An answer.", ["d4", "d0"]),
            item("failed", "", [], reason="no result within 5 s"),
            item("unsupported", "", ["d1"], sub_question="fourth?"),
        ],
        evidence=EVIDENCE,
    )
    found = ours.correct(request)
    assert [(c.index, c.answer, list(c.evidence)) for c in found.corrections] == [(0, "a1", [1])]
    assert found.answer == "A [5]."
    prompt = model.prompts[0]
    assert "1. first? (open; guess, not verified yet: wrong)" in prompt
    assert "2. s? An answer. [5]" in prompt
    assert "3. s? (could not be looked up: no result within 5 s)" in prompt
    assert "4. fourth? (open)" in prompt
    assert prompt.index("[1] s0") < prompt.index("[5] s4\nText 4.")


def test_a_prompt_that_shows_a_part_of_the_evidence_numbers_it_without_gaps() -> None:
    evidence = [Document(f"Text {n}.", id=f"d{n}") for n in range(12)]
    chain = [
        item("unsupported", "", [f"d{n}" for n in (9, 10, 11)], sub_question="first?"),
        item("kept", "An answer.", ["d4"]),
    ]
    ours, model = reasoner(corrections("a1", final="It is so [3][7]. See `x` [2].\n```\nrows[1]\n```\nNot [10], [12]."))
    found = ours.correct(CorrectRequest("q?", [Unsolved(0, "first?", "", ())], chain=chain, evidence=evidence))
    prompt = model.prompts[0]
    numbers = [int(number) for number in re.findall(r"(?m)^\[(\d+)\] d", prompt)]
    texts = [int(number) for number in re.findall(r"(?m)^Text (\d+)\.", prompt)]
    assert numbers == list(range(1, 10))
    assert texts == sorted({0, 1, 2, 3, 4, 5, 9, 10, 11})
    assert f"2. s? An answer. [{texts.index(4) + 1}]" in prompt
    # The reply comes back with the evidence's own numbers, and without numbers that the prompt did not have.
    assert list(found.corrections[0].evidence) == [texts[0] + 1]
    own = [n + 1 for n in texts]
    assert found.answer == f"It is so [{own[2]}][{own[6]}]. See `x` [{own[1]}].\n```\nrows[1]\n```\nNot,."


def test_sentences_to_confirm_are_shown_in_their_answer_with_the_nearest_evidence() -> None:
    ours, model = reasoner(corrections("Text 3 it is.", first=2))
    open_ = [Unsolved(1, "q?", "Text 3 is it.", ())]
    found = ours.correct(CorrectRequest("q?", open_, evidence=EVIDENCE, draft=["First.", "Text 3 is it."]))
    assert [(c.index, c.answer) for c in found.corrections] == [(1, "Text 3 it is.")]
    assert "Answer:\nFirst.\n(2) Text 3 is it." in model.prompts[0]
    assert "\n[3] s3\nText 3." in model.prompts[0]
    assert model.prompts[0].count("Text ") == 4, "three pieces of evidence"


def test_a_sentence_to_confirm_comes_with_the_evidence_that_it_cites() -> None:
    ours, model = reasoner(corrections("Text 3 it is.", first=2))
    open_ = [Unsolved(1, "q?", "Text 3 is it.", [EVIDENCE[0]])]
    ours.correct(CorrectRequest("q?", open_, evidence=EVIDENCE, draft=["A.", "Text 3 is it."]))
    assert "[1] s0\nText 0." in model.prompts[0]
    assert "\n[2] s3\nText 3." in model.prompts[0], "and what is nearest"
    assert model.prompts[0].count("Text ") == 3
