"""The ranking of shards is that of one index of all their documents."""

import random

import pytest

from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.shards.corpus import ShardedCorpus
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.shards.local import (
    LocalWorker,
    compare,
    in_memory,
    make_documents,
    make_settings,
    split_up,
)

_CASES_EACH = 50


def check(seed):
    choose = random.Random(seed)
    encoder = BagOfWords(dimension=choose.choice([8, 48]), max_tokens=40)
    parts = split_up(choose, make_documents(choose, choose.choice([5, 40, 90])), choose.randint(2, 8))
    gone = [document.id for part in parts for document in part if choose.random() < 0.15]
    shards, union = in_memory(parts, gone, encoder, choose.choice(["float32", "int8"]))
    settings = make_settings(choose, encoder)
    one = HopfieldRetriever(corpus=union, **settings)
    workers = [LocalWorker(str(place), corpus) for place, corpus in enumerate(shards)]
    with HopfieldRetriever(corpus=ShardedCorpus(workers, timeout=60), **settings) as sharded:
        found = compare(one, sharded, choose, _CASES_EACH)
        assert len(sharded.corpus) == len(union)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_ids_scores_and_certificates_are_those_of_one_index(seed):
    assert check(seed) > 0


@pytest.mark.slow
def test_they_are_in_a_thousand_cases_more():
    assert all(check(seed) > 0 for seed in range(100, 120))
