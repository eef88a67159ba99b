import itertools
import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langgraph_convcoa.hopfield.functional import sparsemax

VECTOR = st.integers(1, 12).flatmap(lambda n: arrays("float64", n, elements=st.floats(-5, 5, width=32))).map(torch.from_numpy)


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


def test_large_scores():
    assert sparsemax(torch.tensor([[1e6, 1e6], [0.0, 5.0]])).tolist() == [[0.5, 0.5], [0.0, 1.0]]


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
        sparsemax(torch.tensor(values, dtype=torch.float64)),
        torch.tensor(best, dtype=torch.float64),
        atol=1e-7,
        rtol=0,
    )
