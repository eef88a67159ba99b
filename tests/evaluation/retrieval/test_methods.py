"""The checks of method names, and methods of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval, evaluate_sources
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.evaluation.retrieval.test_compare import ASKED, CORPUS, FOLLOW_UP, SHORT
from tests.fakes import FixedRetriever
from tests.retrieval.conftest import BagOfWords

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
