"""The methods by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import METHODS, check_methods, make_method
from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval, evaluate_sources
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.bounds import run_python
from tests.evaluation.retrieval.test_compare import ASKED, CORPUS, FOLLOW_UP, SHORT
from tests.fakes import FixedRetriever, KeywordRetriever, ScriptedModel
from tests.retrieval.conftest import BagOfWords


def kit(**settings: object) -> Kit:
    return Kit(ScriptedModel(), **{"retriever": KeywordRetriever(), **settings})  # type: ignore[arg-type]


def test_an_unknown_name_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no method 'reakt'; choose from closed-book, history-aware-rag, react, ours"):
        make_method("reakt", kit())
    with pytest.raises(InputError, match="no method 'ours-without-web'"):
        check_methods(["ours", "ours-without-web"])


def test_a_method_that_searches_needs_a_retriever_and_one_that_asks_a_model() -> None:
    for name, entry in METHODS.items():
        assert make_method(name, kit()).get_name() == name
        if entry.searches:
            with pytest.raises(InputError, match=f"'{name}' needs a retriever.*give documents"):
                make_method(name, kit(retriever=None))
    with pytest.raises(InputError, match="'ours' needs --model; without a model there is 'extractive'"):
        check_methods(["extractive", "ours"], model=False)
    with pytest.raises(InputError, match="needs a chat model"):
        make_method("ours", Kit(retriever=KeywordRetriever()))


def test_the_names_are_known_before_anything_heavy_is_loaded() -> None:
    code = (
        "import sys; from langgraph_convcoa.evaluation.methods.registry import check_methods; check_methods(['ours']); "
        "assert 'torch' not in sys.modules and 'langgraph_convcoa.graph' not in sys.modules"
    )
    run_python("-c", code)


ALONE, TALK = Dataset("alone", (ASKED,), CORPUS), Dataset("talk", (ASKED, FOLLOW_UP), CORPUS)


@pytest.mark.parametrize(
    ("method", "data", "message"),
    [
        ("rewrite", ALONE, "has a rewrite; leave the method"),
        ("trained", TALK, "name one that convcoa train made with --model"),
        ("bm25-dense", TALK, "Unknown retrieval method 'bm25-dense'; known: bm25"),
        ("peers", TALK, "'peers'; known: .* python -m experiments.peers DATA"),
        ("lecore-like-hybrid", TALK, "python -m experiments.peers DATA"),
    ],
)
def test_a_method_that_cannot_be_measured_is_refused_before_anything_is_encoded(
    method: str, data: Dataset, message: str
) -> None:
    encoder = BagOfWords()
    with pytest.raises(InputError, match=message):
        evaluate_sources([Dataset("first", TALK.queries, CORPUS), data], methods=["question", method], encoder=encoder)
    assert encoder.passages == encoder.queries == []


def oracle(queries: Sequence[Query]) -> list[list[str]]:
    return [[*query.gold] for query in queries]


def test_a_retriever_or_function_of_the_users_own_is_a_method() -> None:
    own = HopfieldRetriever.from_documents([*CORPUS, SHORT], encoder=BagOfWords(), graph=None)
    further: dict[str, Any] = {"reversed": FixedRetriever(found=[*reversed(CORPUS)]), "oracle": oracle, "mine": own}
    options: dict[str, Any] = {"distractors": [SHORT], "encoder": BagOfWords(), "further": further}
    report = evaluate_retrieval(TALK, methods=["bm25", "reversed", "oracle", "hybrid", "mine"], **options)
    found = {name: result.metrics["MRR"] for name, result in report.methods.items()}
    assert (found["reversed"], found["oracle"]) == (pytest.approx(1 / 3), 1.0)
    # The retriever gets the history as ours does.
    assert report.methods["mine"].metrics == report.methods["hybrid"].metrics
    assert [*evaluate_retrieval(TALK, **options).methods][-3:] == ["reversed", "oracle", "mine"]
