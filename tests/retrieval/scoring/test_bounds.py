import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_convcoa.retrieval.scoring.bounds import window_maxima


def by_hand(products, edges):
    return np.stack([products[a + 1 : b].max(axis=0) for a, b in itertools.pairwise(edges)])


@settings(deadline=None)
@given(st.lists(st.integers(2, 150), min_size=1, max_size=20), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_maxima_are_those_of_the_windows_alone(sizes, count, seed):
    edges = np.concatenate([[0], np.cumsum(sizes)])
    products = np.random.default_rng(seed).standard_normal((int(edges[-1]), count), dtype=np.float32)
    products[edges[:-1]] += 10
    before = products.copy()
    np.testing.assert_array_equal(window_maxima(products, edges), by_hand(products, edges))
    np.testing.assert_array_equal(products, before)


@pytest.mark.parametrize("sizes", [[2, 2], [3, 5], [3, 200]])
def test_a_window_that_is_not_a_number_is_told(sizes):
    edges = np.concatenate([[0], np.cumsum(sizes)])
    products = np.zeros((int(edges[-1]), 1), dtype=np.float32)
    products[-1] = np.nan
    best = window_maxima(products, edges)
    assert np.isnan(best).ravel().tolist() == [False, True]
