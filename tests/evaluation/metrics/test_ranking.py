import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.evaluation.metrics.ranking import ndcg, recall, reciprocal_rank

RANKING = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("gold", "k", "expected"),
    [({"a"}, 1, 1), ({"b"}, 1, 0), ({"a", "d"}, 2, 0.5), ({"a", "x"}, 4, 0.5), ({"x"}, 100, 0), (["a", "a"], 1, 1)],
)
def test_recall_is_gold_found_of_all_gold(gold, k, expected):
    assert recall(RANKING, gold, k) == expected


@given(st.permutations(RANKING), st.sets(st.sampled_from([*RANKING, "x"]), min_size=1), st.integers(1, 5))
def test_measures_lie_between_nothing_and_all(ranking, gold, k):
    for value in (reciprocal_rank(ranking, gold), recall(ranking, gold, k), ndcg(ranking, gold, k)):
        assert 0 <= value <= 1 + 1e-12
    best = sorted(ranking, key=lambda identity: identity not in gold)
    assert ndcg(best, gold, k) >= ndcg(ranking, gold, k) - 1e-12


def test_no_gold_is_an_error():
    for measure in (recall, ndcg):
        with pytest.raises(ValueError, match="gold"):
            measure(RANKING, [], 1)


def test_the_measures_agree_with_ir_measures():
    ir_measures = pytest.importorskip("ir_measures")
    generator = random.Random(1)
    documents = [f"d{n}" for n in range(150)]
    for _ in range(20):
        ranking = generator.sample(documents, 120)
        gold = generator.sample(documents, generator.randint(1, 5))
        judged = [ir_measures.Qrel("q", identity, 1) for identity in gold]
        scored = [ir_measures.ScoredDoc("q", identity, -float(rank)) for rank, identity in enumerate(ranking)]
        theirs = ir_measures.calc_aggregate([ir_measures.RR, ir_measures.R @ 10, ir_measures.nDCG @ 10], judged, scored)
        assert reciprocal_rank(ranking, gold) == pytest.approx(theirs[ir_measures.RR])
        assert recall(ranking, gold, 10) == pytest.approx(theirs[ir_measures.R @ 10])
        assert ndcg(ranking, gold, 10) == pytest.approx(theirs[ir_measures.nDCG @ 10])
