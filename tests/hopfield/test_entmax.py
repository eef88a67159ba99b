import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langgraph_convcoa.hopfield.sparsity import entmax15

SCORES = st.integers(1, 12).flatmap(lambda n: arrays("float64", n, elements=st.floats(-5, 5, width=32))).map(torch.from_numpy)
BETA = st.floats(0.01, 50)


@given(SCORES, BETA)
def test_meets_the_condition_for_the_optimum(scores, beta):
    """One tau for all entries with weight, z_i / 2 - sqrt(p_i) = tau; and z_i / 2 <= tau for those without."""
    weights, half = entmax15(scores, beta=beta), beta * scores / 2
    support = weights > 0
    taus = (half - weights.sqrt())[support]
    tau = float(taus.mean())
    assert float(weights.sum()) == pytest.approx(1, abs=1e-9)
    assert float((taus - tau).abs().max()) < 1e-7
    assert (half[~support] <= tau + 1e-7).all()


def test_the_jacobian_is_that_of_the_paper():
    """diag(s) - s s^T / sum(s) with s = sqrt(p) (Peters et al. 2019, proposition 2)."""
    scores = torch.tensor([0.9, 0.5, 0.1, -3.0], dtype=torch.float64)
    s = entmax15(scores).sqrt()
    jacobian = torch.autograd.functional.jacobian(entmax15, scores)
    torch.testing.assert_close(jacobian, torch.diag(s) - torch.outer(s, s) / s.sum())


def test_many_equal_scores_and_float32():
    for n in (2, 1000, 100_000):
        torch.testing.assert_close(entmax15(torch.zeros(n)), torch.full((n,), 1 / n), rtol=1e-4, atol=0)
    scores = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0))
    for beta in (1e-3, 1.0, 100.0):
        torch.testing.assert_close(
            entmax15(scores, beta=beta), entmax15(scores.double(), beta=beta).float(), atol=2e-5, rtol=0
        )
