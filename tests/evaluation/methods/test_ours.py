"""Ours in a conversation: its knowledge set from turn to turn, gold answers, failures, and what the ablations leave out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.runnables import Runnable

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.methods import ours
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Outcome, Turn
from tests.fakes import KeywordRetriever, ScriptedModel, WaitingAction, corrections, node, plan

NETWORK = "When was the Hopfield network described?"
FACT = "John Hopfield described the Hopfield network in 1982."
SPARSEMAX = "When was sparsemax introduced?"
GUESSING = ConvCoAContext(look_first=False)
"""The papers' form, in which the plan has guesses."""


class Model:
    """A model that plans what it is told to, and keeps its prompts."""

    def __init__(self, *plans: str) -> None:
        self.plans = list(plans)
        self.fails = False
        self.model = ScriptedModel(by_prompt=self.reply)

    def reply(self, prompt: str) -> str:
        if self.fails:
            raise ConnectionError("gone")
        if "Answer a question from evidence that was looked up" in prompt:
            return corrections("Corrected from the evidence.", "And this one.", final="It was in 1982 [1].")
        if "Check sentences of an answer" in prompt:
            return corrections("Corrected from the evidence.")
        return self.plans.pop(0)

    @property
    def plan_prompts(self) -> list[str]:
        return [prompt for prompt in self.model.prompts if "action chain" in prompt]


def kept_plan() -> str:
    return plan(node(NETWORK, FACT), final=FACT, optimized=NETWORK)


def converse(
    method: Runnable[Turn, Outcome], questions: list[str], gold: str | None = None, conversation: str = "c"
) -> list[Outcome]:
    """A conversation with the method's own answers, without their citation marks, or with gold ones."""
    history: tuple[tuple[str, str], ...] = ()
    outcomes = []
    for number, question in enumerate(questions):
        outcomes.append(asyncio.run(method.ainvoke(Turn(f"{conversation}{number}", conversation, question, history))))
        history = (*history, (question, gold or outcomes[-1].answer.replace(" [1]", "")))
    return outcomes


def test_a_second_turn_knows_the_chain_of_the_first_and_recalls_its_answer() -> None:
    model = Model(kept_plan(), kept_plan())
    outcomes = converse(make_method("ours", Kit(model.model, KeywordRetriever(), settings=GUESSING)), ["When?", "Once more?"])
    assert [item["status"] for item in outcomes[0].chain] == ["kept"]
    assert [item["status"] for item in outcomes[1].chain] == ["recalled"]
    assert FACT in model.plan_prompts[1]
    assert outcomes[0].passages[0] == "hopfield-1982"


def test_gold_answers_are_a_history_of_their_own() -> None:
    model = Model(kept_plan(), kept_plan())
    outcomes = converse(
        make_method("ours", Kit(model.model, KeywordRetriever(), settings=GUESSING)), ["When?", "Once more?"], gold="In 1899."
    )
    assert "In 1899." in model.plan_prompts[1]
    assert "1982" not in model.plan_prompts[1]
    assert [item["status"] for item in outcomes[1].chain] == ["kept"], "what was not answered so is not recalled"


def test_a_conversation_taken_up_from_its_first_question_goes_the_same_way() -> None:
    def outcomes(method: Runnable[Turn, Outcome]) -> list[Outcome]:
        return converse(method, ["When?", "Once more?", "And again?"])

    first, second = (
        outcomes(make_method("ours", Kit(Model(*[kept_plan()] * 3).model, KeywordRetriever(), settings=GUESSING)))
        for _ in "ab"
    )
    assert first == second


def test_conversations_do_not_know_of_each_other() -> None:
    model = Model(kept_plan(), kept_plan())
    method = make_method("ours", Kit(model.model, KeywordRetriever(), settings=GUESSING))
    converse(method, ["When?"], conversation="a")
    assert converse(method, ["When?"], conversation="b")[0].chain[0]["status"] == "kept"
    assert "[Conversation]" not in model.plan_prompts[1]


def test_a_turn_that_failed_leaves_the_conversation_as_it_was() -> None:
    model = Model(kept_plan(), kept_plan())
    method = make_method("ours", Kit(model.model, KeywordRetriever(), settings=GUESSING))
    answer = converse(method, ["When?"])[0].answer
    history = (("When?", answer),)
    model.fails = True
    with pytest.raises(ModelError):
        asyncio.run(method.ainvoke(Turn("x", "c", "Lost?", history)))
    model.fails = False
    outcome = asyncio.run(method.ainvoke(Turn("y", "c", "Once more?", history)))
    assert outcome.chain[0]["status"] == "recalled"
    assert "Lost?" not in model.plan_prompts[-1]


def test_the_memory_of_conversations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_MOST_THREADS", 2)
    model = Model(*[kept_plan()] * 6)
    conversations = ours._Conversations(
        ours.build_graph(model=model.model, retriever=KeywordRetriever()), ConvCoAContext(), True, 1500
    )

    async def run() -> None:
        for name in "abcde":
            await conversations.answer(Turn(name, name, "When?"), {})

    asyncio.run(run())
    assert list(conversations._threads) == ["d", "e"]
    saver = conversations._saver
    assert not saver.storage
    assert not saver.writes
    assert not saver.blobs, "no checkpoint is left behind"


def test_without_a_knowledge_set_the_history_is_text_and_nothing_is_recalled() -> None:
    model = Model(kept_plan(), kept_plan())
    method = make_method("ours-without-cks", Kit(model.model, KeywordRetriever(), settings=GUESSING))
    outcomes = converse(method, ["When?", "Once more?"])
    assert outcomes[1].chain[0]["status"] == "kept"
    assert "[Conversation]" not in model.plan_prompts[1]
    assert "User: When?\nAssistant: John Hopfield described" in model.plan_prompts[1]


STEPS = plan(node(NETWORK, "It was described by Kohonen in 1977."), node(SPARSEMAX), final="In 1977.", optimized="Both?")


def statuses(name: str, text: str = STEPS, **settings: Any) -> tuple[list[tuple[str, str]], ScriptedModel]:
    model = Model(text)
    kit = Kit(model.model, KeywordRetriever(), **{"settings": GUESSING, **settings})
    outcome = asyncio.run(make_method(name, kit).ainvoke(Turn("q", "c", "Both?")))
    return [(item["status"], item["answer"]) for item in outcome.chain], model.model


def test_ours_answers_from_what_the_question_finds_in_one_call() -> None:
    model = Model(plan(final=f"{FACT[:-1]} [1].", optimized=NETWORK))
    outcome = asyncio.run(make_method("ours", Kit(model.model, KeywordRetriever())).ainvoke(Turn("q", "c", NETWORK)))
    assert outcome.answer == f"{FACT[:-1]} [1]."
    [prompt] = model.model.prompts
    assert FACT in prompt
    assert outcome.passages[0] == "hopfield-1982"


def test_ours_corrects_and_fills() -> None:
    chain, model = statuses("ours")
    assert chain == [("corrected", "Corrected from the evidence."), ("filled", "And this one.")]
    assert len(model.prompts) == 2


def test_corrections_that_are_switched_off_are_not_malformed() -> None:
    kit = Kit(Model(STEPS).model, KeywordRetriever(), settings=ConvCoAContext(max_corrections=0, look_first=False))
    outcome = asyncio.run(make_method("ours", kit).ainvoke(Turn("q", "c", "Both?")))
    assert outcome.malformed == 0
    assert [item["answer"] for item in outcome.chain] == [FACT, "Sparsemax was introduced by Martins and Astudillo in 2016."]


def test_without_verification_a_wrong_guess_stays() -> None:
    chain, _ = statuses("ours-without-verification")
    assert chain[0] == ("kept", "It was described by Kohonen in 1977.")
    assert chain[1][0] == "filled"
    nowhere, model = statuses("ours-without-verification", plan(node(NETWORK, "Xyzzy."), final="Xyzzy."))
    assert nowhere == [("kept", "Xyzzy.")], "even one that has no word of the evidence"
    assert len(model.prompts) == 2


def test_without_alignment_even_a_right_guess_is_answered_anew() -> None:
    chain, model = statuses("ours-without-alignment", kept_plan())
    assert chain == [("corrected", "Corrected from the evidence.")]
    assert len(model.prompts) == 2


def test_without_filling_a_missing_guess_stays_open_and_its_evidence_unseen() -> None:
    chain, model = statuses("ours-without-filling", k=1)
    assert chain == [("corrected", "Corrected from the evidence."), ("unsupported", "")]
    assert "Martins and Astudillo" not in model.prompts[1]


def test_without_draft_the_answer_is_always_written() -> None:
    assert len(statuses("ours", kept_plan())[1].prompts) == 1
    assert len(statuses("ours-without-draft", kept_plan())[1].prompts) == 2


def test_an_action_that_is_left_out_is_not_offered() -> None:
    actions = [WaitingAction("web_querying")]
    prompts = {
        name: statuses(name, kept_plan(), actions=actions)[1].prompts[0]
        for name in ("ours", "ours-without-web_querying", "ours-without-knowledge_retrieval")
    }
    assert [("- web_querying" in text, "- knowledge_retrieval" in text) for text in prompts.values()] == [
        (True, True),
        (False, True),
        (True, False),
    ]


def test_the_kits_passages_a_search_hold_unless_the_settings_say_otherwise() -> None:
    assert len(_passages(Kit(Model(kept_plan()).model, KeywordRetriever(), k=1))) == 1
    kit = Kit(Model(kept_plan()).model, KeywordRetriever(), k=1, settings=ConvCoAContext(k=2))
    assert len(_passages(kit)) == 2
    assert len(_passages(replace(kit, model=Model(kept_plan()).model, k=4, settings=ConvCoAContext(threshold=0.1)))) > 2


def _passages(kit: Kit) -> tuple[str, ...]:
    return asyncio.run(make_method("ours", kit).ainvoke(Turn("q", "c", "When?"))).passages
