import random

import pytest

from langgraph_convcoa.evaluation.metrics import ndcg, recall, reciprocal_rank

RANKING = ["a", "b", "c", "d"]


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
