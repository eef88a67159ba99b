import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.memory import Memory
from langgraph_convcoa.retrieval.scoring import associate, search

BETAS = [0.0, 0.3, 1.0, 10.0, 1000.0, math.inf]


def make_memory(rng, sets, dimension, largest, spread=1.0):
    sizes = rng.integers(1, largest + 1, sets)
    centre = rng.standard_normal(dimension)

    def unit(n):
        rows = centre + spread * rng.standard_normal((n, dimension))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    total = int(sizes.sum())
    offsets = np.cumsum([0, *sizes]).astype(np.int64)
    spans = np.zeros((total, 2), dtype=np.int64)
    return Memory([Document(str(n), id=str(n)) for n in range(sets)], unit(sets), unit(total), offsets, spans)


def weights_by_bisection(products, beta):
    """Sparsemax written another way, in float64."""
    if math.isinf(beta):
        best = products == products.max()
        return best / best.sum()
    z = beta * products
    low, high = z.min() - 1.0, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(z - middle, 0, None).sum() > 1 else (low, middle)
    weights = np.clip(z - high, 0, None)
    return weights / weights.sum() if weights.sum() else np.full(len(z), 1 / len(z))


def brute_force(memory, state, beta, weight):
    scores = []
    for n in range(len(memory)):
        patterns = memory.windows[memory.offsets[n] : memory.offsets[n + 1]].astype(np.float64)
        products = patterns @ state.astype(np.float64)
        scores.append(
            weight * float(memory.whole[n].astype(np.float64) @ state) + weights_by_bisection(products, beta) @ products
        )
    return np.array(scores)


@pytest.mark.parametrize("seed", range(150))
def test_the_top_k_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    choose = random.Random(seed)
    largest = choose.choice([1, 3, 8, 200])
    memory = make_memory(
        rng, choose.randint(1, 60 if largest == 200 else 300), choose.choice([2, 16, 384]), largest, choose.choice([0.1, 1, 5])
    )
    states = rng.standard_normal((choose.randint(1, 5), memory.dimension))
    states = (states / np.linalg.norm(states, axis=1, keepdims=True)).astype(np.float32)
    k, beta, weight = choose.choice([1, 5, 50, 1000]), choose.choice(BETAS), choose.choice([0.0, 0.5, 1.0])
    allowed = None if seed % 3 else rng.random(len(memory)) < 0.4
    for state, ranking in zip(
        states, search(memory, states, k=k, beta=beta, passage_weight=weight, allowed=allowed), strict=True
    ):
        scores = brute_force(memory, state, beta, weight)
        if allowed is not None:
            scores[~allowed] = -np.inf
        count = min(k, int(np.isfinite(scores).sum()))
        assert ranking.certified
        assert len(ranking.indices) == count == len(set(ranking.indices.tolist()))
        # Scores equal place by place, and each index has its score: the same ranking, ties aside.
        np.testing.assert_allclose(ranking.scores, np.sort(scores)[::-1][:count], atol=5e-6)
        np.testing.assert_allclose(ranking.scores, scores[ranking.indices], atol=5e-6)


def test_few_sets_are_scored_in_full():
    rng = np.random.default_rng(0)
    memory = make_memory(rng, 5000, 64, 8, spread=5)
    (ranking,) = search(memory, memory.whole[17:18], k=5)
    assert ranking.indices[0] == 17
    assert ranking.scored <= 200


def test_the_certificate_asks_for_more_when_bounds_mislead():
    # The first 40 sets promise much by one window and hold little; the last is good throughout.
    dimension = 2
    good, bad, best = [0.8, 0.6], [-1.0, 0.0], [1.0, 0.0]
    patterns = np.array([[best, bad]] * 40 + [[good, good]], dtype=np.float32).reshape(-1, dimension)
    memory = Memory(
        [Document(str(n)) for n in range(41)],
        np.zeros((41, dimension), dtype=np.float32),
        patterns,
        np.arange(0, 83, 2),
        np.zeros((82, 2), dtype=np.int64),
    )
    (ranking,) = search(memory, np.array([[1.0, 0.0]], dtype=np.float32), k=1, beta=0.0)
    assert ranking.indices.tolist() == [40]
    assert ranking.scored == 41


def test_equal_scores_come_in_the_order_of_the_memory():
    memory = Memory(
        [Document(str(n)) for n in range(100)],
        np.ones((100, 1), dtype=np.float32),
        np.ones((100, 1), dtype=np.float32),
        np.arange(101),
        np.zeros((100, 2), dtype=np.int64),
    )
    (ranking,) = search(memory, np.ones((1, 1), dtype=np.float32), k=7)
    assert ranking.indices.tolist() == list(range(7))


@given(st.integers(0, 10_000), st.sampled_from(BETAS))
def test_a_score_is_never_above_the_best_window_nor_below_the_mean(seed, beta):
    rng = np.random.default_rng(seed)
    memory = make_memory(rng, 12, 8, 6)
    (ranking,) = search(memory, memory.windows[:1], k=12, beta=beta, passage_weight=0.0)
    for index, score in zip(ranking.indices, ranking.scores, strict=True):
        weights, products = associate(memory, int(index), memory.windows[0], beta)
        assert products.mean() - 1e-6 <= score <= products.max() + 1e-6
        assert weights.sum() == pytest.approx(1)
        assert score == pytest.approx(weights @ products, abs=1e-5)


def test_a_filter_that_matches_nothing_gives_nothing():
    memory = make_memory(np.random.default_rng(0), 5, 4, 3)
    (ranking,) = search(memory, memory.whole[:1], k=3, allowed=np.zeros(5, dtype=bool))
    assert ranking.indices.tolist() == []
    assert ranking.certified


@pytest.mark.parametrize(
    "settings",
    [
        {"k": 0},
        {"k": -1},
        {"k": True},
        {"k": 1.5},
        {"beta": -1.0},
        {"beta": math.nan},
        {"passage_weight": -1},
        {"passage_weight": math.inf},
    ],
)
def test_settings_out_of_range(settings):
    memory = make_memory(np.random.default_rng(0), 5, 4, 3)
    with pytest.raises(InputError, match=next(iter(settings))):
        search(memory, memory.whole[:1], **{"k": 3} | settings)


@pytest.mark.parametrize(
    ("states", "message"), [(np.ones((1, 5)), "length 4"), (np.ones(4), "length 4"), (np.array([[1, np.nan, 0, 0]]), "NaN")]
)
def test_unusable_states(states, message):
    memory = make_memory(np.random.default_rng(0), 5, 4, 3)
    with pytest.raises(RetrievalError, match=message):
        search(memory, states, k=1)
    with pytest.raises(RetrievalError, match="5 passages"):
        search(memory, memory.whole[:1], k=1, allowed=np.ones(4, dtype=bool))
