"""What each ablation of ours leaves out."""

from __future__ import annotations

from experiments.baselines.methods import ALL_METHODS
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from tests.evaluation.methods.planning import GUESSING, NETWORK, Model, converse, kept_plan, statuses
from tests.fakes import KeywordRetriever, node, plan


def test_without_a_knowledge_set_the_history_is_text_and_nothing_is_recalled() -> None:
    model = Model(kept_plan(), kept_plan())
    method = make_method("ours-without-cks", Kit(model.model, KeywordRetriever(), settings=GUESSING), ALL_METHODS)
    outcomes = converse(method, ["When?", "Once more?"])
    assert outcomes[1].chain[0]["status"] == "kept"
    assert "[Conversation]" not in model.plan_prompts[1]
    assert "User: When?\nAssistant: John Hopfield described" in model.plan_prompts[1]


def test_without_verification_a_wrong_guess_stays() -> None:
    chain, _ = statuses("ours-without-verification", methods=ALL_METHODS)
    assert chain[0] == ("kept", "It was described by Kohonen in 1977.")
    assert chain[1][0] == "filled"
    nowhere, model = statuses("ours-without-verification", plan(node(NETWORK, "Xyzzy."), final="Xyzzy."), methods=ALL_METHODS)
    assert nowhere == [("kept", "Xyzzy.")], "even one that has no word of the evidence"
    assert len(model.prompts) == 2


def test_without_alignment_even_a_right_guess_is_answered_anew() -> None:
    chain, model = statuses("ours-without-alignment", kept_plan(), methods=ALL_METHODS)
    assert chain == [("corrected", "Corrected from the evidence.")]
    assert len(model.prompts) == 2


def test_without_filling_a_missing_guess_stays_open_and_its_evidence_unseen() -> None:
    chain, model = statuses("ours-without-filling", k=1, methods=ALL_METHODS)
    assert chain == [("corrected", "Corrected from the evidence."), ("unsupported", "")]
    assert "Martins and Astudillo" not in model.prompts[1]


def test_without_draft_the_answer_is_always_written() -> None:
    assert len(statuses("ours", kept_plan(), methods=ALL_METHODS)[1].prompts) == 1
    assert len(statuses("ours-without-draft", kept_plan(), methods=ALL_METHODS)[1].prompts) == 2
