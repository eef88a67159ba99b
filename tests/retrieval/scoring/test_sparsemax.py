from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langgraph_convcoa.hopfield import functional
from langgraph_convcoa.retrieval.scoring.topk import sparsemax

SCORES = st.one_of(st.floats(-3, 3), st.just(-math.inf), st.floats(-1e12, 1e12))


@settings(deadline=None, max_examples=200)
@given(st.data(), st.integers(1, 4), st.integers(0, 6), st.sampled_from([0, 0.3, 1, 10, 1e6, math.inf]))
def test_it_is_the_sparsemax_of_the_hopfield_layers(data, rows, columns, beta):
    scores = data.draw(arrays(np.float64, (rows, columns), elements=SCORES))
    mask = data.draw(st.none() | arrays(np.bool_, (rows, columns)))
    expected = functional.sparsemax(torch.from_numpy(scores), beta=beta, mask=None if mask is None else torch.from_numpy(mask))
    np.testing.assert_allclose(sparsemax(scores, beta=beta, mask=mask), expected.numpy(), atol=1e-9)


def test_a_score_that_is_not_a_number_gives_no_weights():
    assert np.isnan(sparsemax(np.array([1.0, math.nan]))).any()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_nothing_to_weigh(shape):
    assert sparsemax(np.zeros(shape)).shape == shape
