from dataclasses import replace

import pytest

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval, evaluate_sources
from langgraph_convcoa.evaluation.retrieval.methods import METHODS, chosen_methods
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from tests.evaluation.retrieval.test_compare import ASKED, CORPUS, FOLLOW_UP, SHORT
from tests.retrieval.conftest import BagOfWords

ALONE, TALK = Dataset("alone", (ASKED,), CORPUS), Dataset("talk", (ASKED, FOLLOW_UP), CORPUS)
LIKE = replace(FOLLOW_UP, history=(("Who proposed sparsemax?", "Martins"),))
READING = ("two-turns", "history", "rewrite", "convgqr-like", "lecore-like", "haconvdr-like", "haconvdr-oracle")


def test_peers_are_those_that_data_and_arguments_allow():
    assert chosen_methods(["peers"], (), ALONE) == ("bm25", "question-parts", "two-turns-parts", "history-parts")
    without_models = ("bm25", "question-parts", *(f"{method}-parts" for method in READING))
    assert chosen_methods(["peers", "untrained", "bm25"], (), TALK) == (*without_models, "untrained")
    everything = chosen_methods(["peers"], ("rewriter", "answerer", "dual"), TALK)
    assert set(everything) - set(without_models) == {"t5qr-parts", "convgqr-parts", "dual-question"}


@pytest.mark.parametrize(
    ("method", "data", "message"),
    [
        ("rewrite", ALONE, "rewrite needs rewrites, and no query of alone has one"),
        ("rewrite-hybrid", ALONE, "rewrite-hybrid needs rewrites"),
        ("haconvdr-like", ALONE, "haconvdr-like reads earlier turns, and no query of alone has any; measure question"),
        ("t5qr", TALK, "t5qr needs a model that rewrites questions: name its folder or hub name with --rewriter"),
        ("convgqr", TALK, "--rewriter"),
        ("dual-question", TALK, "convcoa train DATA --dual-question --out DIR, then --dual DIR"),
        ("bm25-hybrid", TALK, "Unknown retrieval method 'bm25-hybrid'; known: bm25"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_encoded(method, data, message):
    encoder = BagOfWords()
    with pytest.raises(InputError, match=message):
        evaluate_sources([Dataset("first", TALK.queries, CORPUS), data], methods=["question", method], encoder=encoder)
    assert encoder.passages == encoder.queries == []


def test_the_mean_is_of_the_methods_that_all_sources_have():
    report = evaluate_sources([TALK, ALONE], methods=["peers"], encoder=BagOfWords())
    assert "lecore-like-parts" in report.sources[0].methods
    assert list(report.macro) == ["bm25", "question-parts", "two-turns-parts", "history-parts"]


@pytest.mark.parametrize("method", READING)
def test_methods_that_read_the_history_find_what_the_question_leaves_out(method):
    data = Dataset("talk", (LIKE,), (*CORPUS, SHORT))
    report = evaluate_retrieval(
        data, methods=["question", method, "question-hybrid", f"{method}-hybrid", f"{method}-parts"], encoder=BagOfWords()
    )
    found = {name: result.metrics["Recall@1"] for name, result in report.methods.items()}
    assert found == {"question": 0, method: 1, "question-hybrid": 0, f"{method}-hybrid": 1, f"{method}-parts": 1}


@pytest.mark.parametrize("method", ["bm25", "question", *READING, "untrained"])
def test_as_many_texts_are_encoded_as_the_method_says(method):
    encoder = BagOfWords()
    # Two turns help and are like the question, so that both are searched with it.
    turns = (("Who proposed sparsemax?", "Martins"), ("Who proposed it in 2016?", "Someone"), ("In it?", "It was."))
    asked = Query("4", "When was it proposed?", turns, ("sparsemax",), rewrite="When was sparsemax proposed?")
    evaluate_retrieval(Dataset("made", (asked,), (*CORPUS, SHORT)), methods=[method], encoder=encoder)
    told = {"0": 0, "1": 1, "t + 1": 4, "t + 2": 5}[METHODS[method].texts]
    assert len(encoder.queries) == told


def test_a_model_without_a_question_encoder():
    with pytest.raises(InputError, match="has no question encoder; make one: convcoa train DATA --dual-question"):
        evaluate_retrieval(TALK, methods=["dual-question"], encoder=BagOfWords(), dual=RetrieverModel("bag"))
