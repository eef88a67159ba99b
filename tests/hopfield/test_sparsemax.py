import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langgraph_convcoa.hopfield.sparsity import sparsemax, sparsemax_topk

MATRIX = (
    st.tuples(st.integers(1, 4), st.integers(1, 40))
    .flatmap(lambda shape: arrays("float64", shape, elements=st.floats(-5, 5, width=32)))
    .map(torch.from_numpy)
)
VECTOR = st.integers(1, 12).flatmap(lambda n: arrays("float64", n, elements=st.floats(-5, 5, width=32))).map(torch.from_numpy)
BETA = st.one_of(st.floats(0, 50), st.just(math.inf))


def projection_by_bisection(z):
    """The projection on the simplex found another way: the threshold that makes the weights add up to one."""
    low, high = float(z.min()) - 1.0, float(z.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (z - middle).clamp(min=0).sum() > 1 else (low, middle)
    return (z - (low + high) / 2).clamp(min=0)


@given(VECTOR, st.floats(0.01, 50))
def test_is_the_projection_on_the_simplex(scores, beta):
    expected = projection_by_bisection(beta * scores)
    torch.testing.assert_close(sparsemax(scores, beta=beta), expected, atol=1e-9, rtol=0)


def test_other_dimensions_and_large_scores():
    scores = torch.tensor([[1e6, 0.0], [1e6, 5.0]])
    assert sparsemax(scores, dim=0).tolist() == [[0.5, 0.0], [0.5, 1.0]]
    assert sparsemax(torch.zeros(2, 0)).shape == (2, 0)


@given(MATRIX, BETA, st.integers(1, 40), st.data())
def test_equals_the_sorted_one_for_every_k(scores, beta, k, data):
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=scores.numel(), max_size=scores.numel()))).view_as(scores)
    expected = sparsemax(scores, beta=beta, mask=mask)
    torch.testing.assert_close(sparsemax_topk(scores, beta=beta, mask=mask, k=k), expected, atol=1e-12, rtol=0)


@given(MATRIX, st.floats(0.01, 50), st.integers(1, 8))
def test_has_the_gradient_of_the_sorted_one(scores, beta, k):
    a, b = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    first, second = sparsemax(a, beta=beta), sparsemax_topk(b, beta=beta, k=k)
    slopes = torch.linspace(-1, 2, scores.numel(), dtype=scores.dtype).view_as(scores)
    # A score that equals the threshold is a kink, where either side's slope is right.
    top = scores.argmax(dim=-1, keepdim=True)
    threshold = beta * scores.gather(-1, top) - first.gather(-1, top)
    assume(not ((beta * scores - threshold).abs() < 1e-9).any())
    (first * slopes).sum().backward()
    (second * slopes).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, atol=1e-9, rtol=1e-9)


@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=6))
def test_equals_the_nearest_point_over_all_faces_of_the_simplex(values):
    """Brute force: the projection on the plane of every face, the nearest of those that lie in the simplex."""
    best, nearest = None, math.inf
    for size in range(1, len(values) + 1):
        for chosen in itertools.combinations(range(len(values)), size):
            tau = (sum(values[i] for i in chosen) - 1) / size
            point = [values[i] - tau if i in chosen else 0.0 for i in range(len(values))]
            distance = sum((p - x) ** 2 for p, x in zip(point, values, strict=True))
            if min(point) >= 0 and distance < nearest:
                best, nearest = point, distance
    torch.testing.assert_close(
        sparsemax_topk(torch.tensor(values, dtype=torch.float64), k=2),
        torch.tensor(best, dtype=torch.float64),
        atol=1e-7,
        rtol=0,
    )


def test_a_support_larger_than_k_is_found_in_the_rows_that_have_one():
    scores = torch.zeros(2, 100, dtype=torch.float64)
    scores[0, 7] = 5.0
    weights = sparsemax_topk(scores, k=3)
    assert weights[0].nonzero().tolist() == [[7]]
    torch.testing.assert_close(weights[1], torch.full((100,), 0.01, dtype=torch.float64))


def test_no_scores_and_a_bad_k():
    assert sparsemax_topk(torch.zeros(2, 0)).shape == (2, 0)
    with pytest.raises(ValueError, match="k must be"):
        sparsemax_topk(torch.zeros(2), k=0)
