import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_convcoa.retrieval.scoring.bounds import Scratch, window_maxima


def by_hand(products, edges):
    return torch.stack([products[a + 1 : b].amax(dim=0) for a, b in itertools.pairwise(edges)])


@settings(deadline=None)
@given(st.lists(st.integers(2, 150), min_size=1, max_size=20), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_maxima_are_those_of_the_windows_alone(sizes, count, seed):
    edges = np.concatenate([[0], np.cumsum(sizes)])
    products = torch.randn((int(edges[-1]), count), generator=torch.Generator().manual_seed(seed))
    products[edges[:-1]] += 10
    before, scratch = products.clone(), Scratch()
    expected = by_hand(products, edges)
    for _ in range(2):
        # The second time in memory that holds something already.
        torch.testing.assert_close(window_maxima(products, edges, scratch), expected, rtol=0, atol=0)
    torch.testing.assert_close(products, before, rtol=0, atol=0)


@pytest.mark.parametrize("sizes", [[2, 2], [3, 5], [3, 200]])
def test_a_window_that_is_not_a_number_is_told(sizes):
    edges = np.concatenate([[0], np.cumsum(sizes)])
    products = torch.zeros((int(edges[-1]), 1))
    products[-1] = torch.nan
    best = window_maxima(products, edges, Scratch())
    assert best.isnan().flatten().tolist() == [False, True]


def test_memory_is_used_again_and_grows():
    scratch = Scratch()
    large = scratch.take("a", (4, 5), torch.float32)
    assert scratch.take("a", (3, 2), torch.float32).data_ptr() == large.data_ptr()
    assert scratch.take("b", (3, 2), torch.float32).data_ptr() != large.data_ptr()
    assert scratch.take("a", (9, 5), torch.float32).shape == (9, 5)
