from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval import search
from langgraph_convcoa.retrieval.patterns import PATTERN_TYPES, Patterns, encode_patterns
from langgraph_convcoa.retrieval.search import associate, top_k

BETAS = [0.0, 0.3, 1.0, 10.0, 1000.0, math.inf]


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def make_patterns(rng, sets, dimension, largest, spread=1.0, dtype="float32"):
    sizes = 1 + rng.integers(1, largest + 1, sets)
    rows = unit(rng.standard_normal(dimension) + spread * rng.standard_normal((int(sizes.sum()), dimension)))
    values, scales = encode_patterns(rows, dtype)
    values.flags.writeable = False
    return Patterns(values, np.cumsum([0, *sizes]), scales, dtype)


def weights_by_bisection(products, beta):
    """Sparsemax of each row written another way, in float64; where a row has ended stands minus infinity."""
    if math.isinf(beta):
        best = products == products.max(axis=1, keepdims=True)
        return best / best.sum(axis=1, keepdims=True)
    there = np.isfinite(products)
    z = np.where(there, beta * np.where(there, products, 0), -np.inf)
    low, high = np.where(there, z, np.inf).min(axis=1) - 1.0, z.max(axis=1)
    # 60 halvings of a stretch of 10,000 leave 10^-14.
    for _ in range(60):
        middle = (low + high) / 2
        more = np.clip(z - middle[:, None], 0, None).sum(axis=1) > 1
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    weights = np.clip(z - high[:, None], 0, None)
    weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, there)
    return weights / weights.sum(axis=1, keepdims=True)


def brute_force(patterns, state, beta, weight):
    """The scores of all sets from the definition: the associated pattern z first, and its product with the state."""
    state = state.astype(np.float64)
    sets = [patterns.rows(*patterns.offsets[n : n + 2]).astype(np.float64) for n in range(patterns.n)]
    products = np.full((len(sets), max(map(len, sets)) - 1), -np.inf)
    for n, rows in enumerate(sets):
        products[n, : len(rows) - 1] = rows[1:] @ state
    weights = weights_by_bisection(products, beta)
    associated = [row[: len(rows) - 1] @ rows[1:] for row, rows in zip(weights, sets, strict=True)]
    return np.array([weight * rows[0] @ state + z @ state for rows, z in zip(sets, associated, strict=True)])


def check_against_brute_force(seed):
    rng, choose = np.random.default_rng(seed), random.Random(seed)
    largest = choose.choice([1, 3, 8, 200])
    dimension, dtype = choose.choice([2, 16, 384]), choose.choice(PATTERN_TYPES)
    sets = choose.randint(1, 30 if largest == 200 else 200)
    patterns = make_patterns(rng, sets, dimension, largest, choose.choice([0.1, 1, 5]), dtype)
    states = unit(rng.standard_normal((choose.choice([1, 1, 2, 5]), dimension)))
    k, beta, weight = choose.choice([1, 5, 50, 1000]), choose.choice(BETAS), choose.choice([0.0, 0.5, 1.0])
    allowed = rng.random(sets) < choose.choice([0.03, 0.4]) if choose.random() < 0.4 else None
    extra = rng.random((len(states), sets)).astype(np.float32) / 5 if choose.random() < 0.3 else None
    atol = 5e-6
    found = top_k(patterns, states, k=k, beta=beta, passage_weight=weight, allowed=allowed, extra=extra)
    for row, ranking in enumerate(found):
        scores = brute_force(patterns, states[row], beta, weight)
        scores += 0 if extra is None else extra[row]
        if allowed is not None:
            scores[~allowed] = -np.inf
        count = min(k, int(np.isfinite(scores).sum()))
        assert ranking.certified
        assert len(ranking.indices) == count == len(set(ranking.indices.tolist()))
        # Scores equal place by place, and each index has its score: the same ranking, ties aside.
        np.testing.assert_allclose(ranking.scores, np.sort(scores)[::-1][:count], atol=atol)
        np.testing.assert_allclose(ranking.scores, scores[ranking.indices], atol=atol)


@pytest.mark.parametrize("seed", range(100))
def test_the_top_k_is_that_of_brute_force(seed):
    check_against_brute_force(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 1000, 100))
def test_the_top_k_is_that_of_brute_force_a_thousand_times(start):
    for seed in range(start, start + 100):
        check_against_brute_force(seed)


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
def test_few_sets_are_scored_in_full(dtype):
    patterns = make_patterns(np.random.default_rng(0), 5000, 64, 8, spread=5, dtype=dtype)
    (ranking,) = top_k(patterns, patterns.rows(patterns.offsets[17], patterns.offsets[17] + 1), k=5)
    assert ranking.indices[0] == 17
    assert ranking.scored <= 100


def test_the_certificate_asks_for_more_when_bounds_mislead():
    # The first 400 sets promise much by one window and hold little; the last is good throughout.
    nothing, good, bad, best = [0.0, 0.0], [0.8, 0.6], [-1.0, 0.0], [1.0, 0.0]
    rows = np.array([[nothing, best, bad]] * 400 + [[nothing, good, good]], dtype=np.float32).reshape(-1, 2)
    patterns = Patterns(rows, np.arange(0, len(rows) + 1, 3))
    (ranking,) = top_k(patterns, np.array([[1.0, 0.0]], dtype=np.float32), k=1, beta=0.0)
    assert ranking.indices.tolist() == [400]
    assert ranking.certified
    assert ranking.scored == 401


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
@pytest.mark.parametrize("queries", [1, 3])
def test_equal_scores_come_in_the_order_of_the_memory(dtype, queries):
    values, scales = encode_patterns(np.ones((1000, 4), dtype=np.float32) / 2, dtype)
    patterns = Patterns(values, np.arange(0, 1001, 2), scales, dtype)
    for ranking in top_k(patterns, unit(np.ones((queries, 4))), k=7):
        assert ranking.indices.tolist() == list(range(7))


@given(st.integers(0, 10_000), st.sampled_from(BETAS))
def test_a_score_is_never_above_the_best_window_nor_below_the_mean(seed, beta):
    patterns = make_patterns(np.random.default_rng(seed), 12, 8, 6)
    state = patterns.rows(1, 2)[0]
    (ranking,) = top_k(patterns, state[None], k=12, beta=beta, passage_weight=0.0)
    for index, score in zip(ranking.indices, ranking.scores, strict=True):
        weights, products = associate(patterns, int(index), state, beta)
        assert products.mean() - 1e-6 <= score <= products.max() + 1e-6
        assert weights.sum() == pytest.approx(1)
        assert score == pytest.approx(weights @ products, abs=1e-5)


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
def test_association_is_that_of_the_definition(dtype):
    rng = np.random.default_rng(3)
    patterns, state = make_patterns(rng, 4, 16, 9, dtype=dtype), unit(rng.standard_normal(16))
    weights, products = associate(patterns, 2, state, 5.0)
    expected = patterns.rows(patterns.offsets[2] + 1, patterns.offsets[3]).astype(np.float64) @ state
    np.testing.assert_allclose(products, expected, atol=1e-5)
    np.testing.assert_allclose(weights, weights_by_bisection(expected[None], 5.0)[0], atol=1e-4)


def test_threads_and_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(5)
    states = unit(rng.standard_normal((20, 16)))
    for dtype in PATTERN_TYPES:
        patterns = make_patterns(rng, 3000, 16, 8, dtype=dtype)
        expected = top_k(patterns, states, k=30)
        monkeypatch.setattr(search, "_WORTH_THREADS", 0)
        monkeypatch.setattr(search, "_FEWEST_ROWS", 64)
        monkeypatch.setattr(search, "_SHARED_ROWS", 64)
        monkeypatch.setattr(search, "_BLOCK_PRODUCTS", dict.fromkeys(PATTERN_TYPES, 64))
        monkeypatch.setattr(search, "_PRODUCT_BYTES", 1)
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        found = top_k(patterns, states, k=30)
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one.indices, other.indices)
            np.testing.assert_array_equal(one.scores, other.scores)
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
def test_a_score_is_that_of_the_passage_wherever_it_stands(dtype, monkeypatch):
    rng = np.random.default_rng(7)
    patterns, states = make_patterns(rng, 700, 384, 12, dtype=dtype), unit(rng.standard_normal((3, 384)))
    everything = top_k(patterns, states, k=700)
    for queries_together in (3, 1):
        monkeypatch.setattr(search, "_QUERIES", queries_together)
        for size in (1, 2, 3, 50, 699):
            some = rng.permutation(700)[:size]
            found = top_k(patterns.select(some), states, k=size)
            for ranking, full in zip(found, everything, strict=True):
                scores = dict(zip(full.indices.tolist(), full.scores.tolist(), strict=True))
                assert [scores[number] for number in some[ranking.indices].tolist()] == ranking.scores.tolist()


def test_a_filter_that_matches_nothing_gives_nothing():
    patterns = make_patterns(np.random.default_rng(0), 5, 4, 3)
    (ranking,) = top_k(patterns, patterns.rows(0, 1), k=3, allowed=np.zeros(5, dtype=bool))
    assert ranking.indices.tolist() == []
    assert ranking.certified


def test_an_empty_memory_and_no_query_give_nothing():
    empty = Patterns(np.zeros((0, 4), dtype=np.float32), np.zeros(1, dtype=np.int64))
    assert top_k(empty, np.ones((1, 4), dtype=np.float32), k=3)[0].indices.tolist() == []
    assert top_k(make_patterns(np.random.default_rng(0), 5, 4, 3), np.zeros((0, 4), dtype=np.float32), k=1) == []


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
    patterns = make_patterns(np.random.default_rng(0), 5, 4, 3)
    with pytest.raises(InputError, match=next(iter(settings))):
        top_k(patterns, patterns.rows(0, 1), **{"k": 3} | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"states": np.ones((1, 5))}, "length 4"),
        ({"states": np.ones(4)}, "length 4"),
        ({"states": np.array([[1, np.nan, 0, 0]])}, "NaN"),
        ({"allowed": np.ones(4, dtype=bool)}, "5 passages"),
        ({"allowed": np.ones(5)}, "float64"),
        ({"extra": np.ones((1, 4), dtype=np.float32)}, "5 passages"),
        ({"extra": np.full((1, 5), np.inf, dtype=np.float32)}, "infinity"),
    ],
)
def test_parts_that_do_not_fit(settings, message):
    patterns = make_patterns(np.random.default_rng(0), 5, 4, 3)
    with pytest.raises(RetrievalError, match=message):
        top_k(patterns, **{"states": patterns.rows(0, 1), "k": 1} | settings)


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("queries", [1, 3])
def test_a_pattern_that_is_not_a_number_is_told(dtype, row, queries):
    patterns = make_patterns(np.random.default_rng(0), 2000, 4, 3, dtype=dtype)
    values = patterns.values.copy()
    scales = None if patterns.scales is None else patterns.scales.copy()
    if scales is None:
        values[patterns.offsets[1234] + row, 2] = np.nan
    else:
        scales[patterns.offsets[1234] + row] = np.nan
    with pytest.raises(RetrievalError, match="1234"):
        top_k(Patterns(values, patterns.offsets, scales, dtype), patterns.rows(0, queries), k=3)
