import numpy as np
import pytest

from langgraph_convcoa.evaluation.bench.scoring_methods import synthetic_memory


@pytest.mark.parametrize("size", [2, 3, 20, 1000, 70_000])
def test_synthetic_memories_have_the_size_asked_for(size):
    patterns, queries = synthetic_memory(size, 8, 3, seed=1)
    assert len(patterns.values) == size
    assert np.diff(patterns.offsets).max() <= 30
    np.testing.assert_allclose(np.linalg.norm(patterns.values, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, rtol=1e-5)


def test_passages_lie_in_topics_and_windows_near_their_passage():
    patterns, queries = synthetic_memory(20_000, 384, 5, seed=0)
    firsts = patterns.offsets[:-1]
    whole = patterns.values[firsts]
    near = (whole[:200] @ whole.T > 0.35).sum(axis=1)
    # About one in 500 shares the topic, itself among them.
    assert 3 < near.mean() < 12
    np.testing.assert_allclose((patterns.values[firsts + 1] * whole).sum(axis=1).mean(), 0.78, atol=0.01)
    np.testing.assert_allclose((queries @ whole.T).max(axis=1), 0.78, atol=0.12)
