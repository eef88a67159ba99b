import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langgraph_convcoa.hopfield.sparsity import sparsemax

FINITE = st.floats(-5, 5, width=32)


def vectors(n_min=1, n_max=12):
    return st.integers(n_min, n_max).flatmap(lambda n: arrays("float64", n, elements=FINITE)).map(torch.from_numpy)


def projection_by_bisection(z):
    """The projection on the simplex found another way: the threshold that makes the weights add up to one."""
    low, high = float(z.min()) - 1.0, float(z.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (z - middle).clamp(min=0).sum() > 1 else (low, middle)
    return (z - (low + high) / 2).clamp(min=0)


@given(vectors(), st.floats(0.01, 50))
def test_is_the_projection_on_the_simplex(scores, beta):
    expected = projection_by_bisection(beta * scores)
    torch.testing.assert_close(sparsemax(scores, beta=beta), expected, atol=1e-9, rtol=0)


@given(vectors(), st.one_of(st.floats(0, 1e6), st.just(math.inf)), FINITE)
def test_weights_are_a_distribution_and_a_shift_changes_nothing(scores, beta, shift):
    weights = sparsemax(scores, beta=beta)
    assert (weights >= 0).all()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-9)
    if not math.isinf(beta) and beta < 1000:
        torch.testing.assert_close(sparsemax(scores + shift, beta=beta), weights, atol=1e-6, rtol=0)


def test_infinite_beta_is_uniform_over_the_maxima_and_zero_beta_over_all():
    scores = torch.tensor([[3.0, 1.0, 3.0], [0.0, 0.0, 0.0]])
    third = 1 / 3
    torch.testing.assert_close(sparsemax(scores, beta=math.inf), torch.tensor([[0.5, 0, 0.5], [third] * 3]))
    torch.testing.assert_close(sparsemax(scores, beta=0), torch.tensor([[third] * 3] * 2))


def test_masked_entries_have_no_weight_and_a_masked_row_is_zero():
    scores = torch.tensor([[1.0, 9.0], [1.0, 2.0]])
    mask = torch.tensor([[True, False], [False, False]])
    for beta in (0.0, 1.0, math.inf):
        assert sparsemax(scores, beta=beta, mask=mask).tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_a_masked_row_has_no_nan_gradient():
    scores = torch.tensor([[1.0, 9.0], [1.0, 2.0]], requires_grad=True)
    sparsemax(scores, mask=torch.tensor([[True, True], [False, False]])).square().sum().backward()
    assert torch.isfinite(scores.grad).all()


def test_gradient():
    scores = torch.tensor([[0.9, 0.5, 0.1, -2.0], [0.3, 0.2, 0.25, 0.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: sparsemax(z, beta=1.7), scores)


def test_other_dimensions_and_large_scores():
    scores = torch.tensor([[1e6, 0.0], [1e6, 5.0]])
    assert sparsemax(scores, dim=0).tolist() == [[0.5, 0.0], [0.5, 1.0]]
    assert sparsemax(torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("beta", [-1.0, math.nan])
def test_bad_beta(beta):
    with pytest.raises(ValueError, match="beta"):
        sparsemax(torch.zeros(2), beta=beta)
