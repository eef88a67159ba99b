import itertools
import math

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


@given(SCORES, BETA, st.integers(0, 2**32 - 1))
def test_no_other_distribution_scores_higher(scores, beta, seed):
    """It maximises <p, z> + H(p) with the Tsallis entropy H(p) = 4/3 (1 - sum p^1.5)."""

    def objective(p):
        return float((p * beta * scores).sum() + 4 / 3 * (1 - p.pow(1.5).sum()))

    weights = entmax15(scores, beta=beta)
    generator = torch.Generator().manual_seed(seed)
    for sharpness in (0.3, 1.0, 5.0):
        other = torch.softmax(sharpness * torch.randn(len(scores), dtype=torch.float64, generator=generator), dim=0)
        for mix in (other, 0.99 * weights + 0.01 * other):
            assert objective(weights) >= objective(mix) - 1e-9


@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=5))
def test_equals_the_best_over_all_supports(values):
    """Brute force: for every support the root of its quadratic in tau, kept where it is consistent."""
    half = [x / 2 for x in values]
    found = []
    for size in range(1, len(half) + 1):
        for chosen in itertools.combinations(range(len(half)), size):
            mean = sum(half[i] for i in chosen) / size
            inner = 1 / size - sum((half[i] - mean) ** 2 for i in chosen) / size
            tau = mean - math.sqrt(max(inner, 0.0))
            inside = all(half[i] >= tau - 1e-9 for i in chosen)
            outside = all(half[i] <= tau + 1e-9 for i in range(len(half)) if i not in chosen)
            if inner >= 0 and inside and outside:
                found.append([max(half[i] - tau, 0.0) ** 2 if i in chosen else 0.0 for i in range(len(half))])
    weights = entmax15(torch.tensor(values, dtype=torch.float64))
    assert found
    assert min(float((weights - torch.tensor(row, dtype=torch.float64)).abs().max()) for row in found) < 1e-7


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
