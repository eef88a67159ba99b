import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from langgraph_convcoa.hopfield import arrays as in_numpy
from langgraph_convcoa.hopfield import functional
from langgraph_convcoa.hopfield.functional import associate, check_activation, entmax15, sparsemax
from tests.hopfield import plain_loops

NAMES = ["sparsemax", "entmax15", "softmax"]
NAME = st.sampled_from(NAMES)
SCORES = (
    st.integers(1, 9).flatmap(lambda n: arrays("float64", (2, n), elements=st.floats(-5, 5, width=32))).map(torch.from_numpy)
)
BETA = st.floats(0.01, 50)


def masks_like(scores, data):
    return torch.tensor(data.draw(st.lists(st.booleans(), min_size=scores.numel(), max_size=scores.numel()))).view_as(scores)


@given(NAME, SCORES, BETA, st.data())
def test_equals_plain_loops(name, scores, beta, data):
    mask = masks_like(scores, data)
    expected = [
        plain_loops.weights(row, name, beta, allowed) for row, allowed in zip(scores.tolist(), mask.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        associate(scores, activation=name, beta=beta, mask=mask),
        torch.tensor(expected, dtype=torch.float64),
        atol=1e-9,
        rtol=0,
    )


@given(NAME, SCORES, st.one_of(BETA, st.just(0.0), st.just(math.inf)), st.data())
def test_weights_lie_on_the_simplex_and_a_masked_row_is_zero(name, scores, beta, data):
    mask = masks_like(scores, data)
    weights = associate(scores, activation=name, beta=beta, mask=mask)
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    totals, some = weights.sum(dim=-1), mask.any(dim=-1)
    assert (totals[~some] == 0).all()
    torch.testing.assert_close(totals[some], torch.ones_like(totals[some]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_ends_of_beta_are_the_limits(name):
    scores = torch.tensor([[3.0, 1.0, 3.0, 9.0], [2.0, 1.0, 0.5, 9.0]], dtype=torch.float64)
    mask = torch.tensor([True, True, True, False])
    for end, near in ((0.0, 1e-9), (math.inf, 1e9)):
        at_end = associate(scores, activation=name, beta=end, mask=mask)
        torch.testing.assert_close(at_end, associate(scores, activation=name, beta=near, mask=mask), atol=1e-7, rtol=0)
    largest = torch.tensor([[0.5, 0, 0.5, 0], [1, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(associate(scores, activation=name, beta=math.inf, mask=mask), largest)


@pytest.mark.parametrize("name", NAMES)
def test_a_beta_for_each_head_is_that_heads_number(name):
    scores = torch.randn(3, 4, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    betas = [0.0, 0.5, 8.0, math.inf]
    together = associate(scores, activation=name, beta=torch.tensor(betas).view(-1, 1, 1))
    for head, beta in enumerate(betas):
        torch.testing.assert_close(together[:, head], associate(scores[:, head], activation=name, beta=beta))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_scores_and_beta_with_masks(name):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator).requires_grad_()
    beta = torch.tensor([[[0.7]], [[2.3]]], dtype=torch.float64, requires_grad=True)
    mask = torch.rand(2, 3, 5, generator=generator) < 0.7
    mask[0, 0] = False
    assert torch.autograd.gradcheck(lambda s, b: associate(s, activation=name, beta=b, mask=mask), (scores, beta))


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives(name):
    scores = torch.tensor([0.9, 0.5, 0.1, -2.0, 0.45], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda s: associate(s, activation=name, beta=1.3), scores)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beta", [0.0, 1.0, math.inf])
def test_masked_rows_have_finite_gradients(name, beta):
    scores = torch.tensor([[1.0, 9.0, 0.5], [1.0, 2.0, 3.0]], requires_grad=True)
    betas = torch.full((1,), beta, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    associate(scores, activation=name, beta=betas, mask=mask).square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert torch.isfinite(betas.grad).all()
    assert (scores.grad[1] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_score_of_minus_infinity_counts_as_masked(name):
    scores = torch.tensor([[1.0, -math.inf, 0.8], [-math.inf] * 3])
    mask = torch.tensor([[True, False, True], [False] * 3])
    for beta in (0.0, 1.0, math.inf):
        expected = associate(scores.nan_to_num(neginf=0.0), activation=name, beta=beta, mask=mask)
        assert torch.equal(associate(scores, activation=name, beta=beta), expected)


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_under_the_mask_does_not_matter(name):
    mask = torch.tensor([True, False, True])
    for junk in (math.nan, math.inf, -math.inf, 1e30):
        scores = torch.tensor([0.4, junk, 0.1], requires_grad=True)
        weights = associate(scores, activation=name, mask=mask)
        assert torch.equal(weights, associate(torch.tensor([0.4, 0.0, 0.1]), activation=name, mask=mask))
        weights.square().sum().backward()
        assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_returned_in_half(name, dtype):
    scores = torch.randn(4, 300, generator=torch.Generator().manual_seed(1)).to(dtype)
    weights = associate(scores, activation=name, beta=0.3)
    assert weights.dtype == dtype
    assert torch.equal(weights, associate(scores.float(), activation=name, beta=0.3).to(dtype))


@pytest.mark.parametrize("name", NAMES)
def test_no_scores_and_very_large_scores(name):
    assert associate(torch.zeros(2, 0), activation=name).shape == (2, 0)
    assert associate(torch.tensor([1e30, -1e30, 0.0]), activation=name, beta=1e6).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beta", [-1.0, math.nan, torch.tensor([1.0, -1.0]).view(-1, 1)])
def test_bad_beta(name, beta):
    with pytest.raises(ValueError, match="beta must be from 0"):
        associate(torch.zeros(2, 3), activation=name, beta=beta)


def test_an_unknown_name_and_an_additive_mask_are_refused():
    with pytest.raises(ValueError, match="'sparse': use one of sparsemax, entmax15"):
        check_activation("sparse")
    with pytest.raises(ValueError, match="must be boolean"):
        associate(torch.zeros(2), mask=torch.tensor([0.0, -math.inf]))


ROW = st.integers(1, 12).flatmap(lambda n: arrays("float64", n, elements=st.floats(-5, 5, width=32))).map(torch.from_numpy)


@given(ROW, BETA)
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
        sparsemax(torch.tensor(values, dtype=torch.float64)), torch.tensor(best, dtype=torch.float64), atol=1e-7, rtol=0
    )


ANY_SCORES = st.one_of(st.floats(-3, 3), st.just(-math.inf), st.floats(-1e12, 1e12))


@settings(deadline=None, max_examples=200)
@given(st.data(), st.integers(1, 4), st.integers(0, 6), st.sampled_from([0, 0.3, 1, 10, 1e6, math.inf]))
def test_it_is_the_sparsemax_of_the_hopfield_layers(data, rows, columns, beta):
    scores = data.draw(arrays(np.float64, (rows, columns), elements=ANY_SCORES))
    mask = data.draw(st.none() | arrays(np.bool_, (rows, columns)))
    expected = sparsemax(torch.from_numpy(scores), beta=beta, mask=None if mask is None else torch.from_numpy(mask))
    np.testing.assert_allclose(in_numpy.sparsemax(scores, beta=beta, mask=mask), expected.numpy(), atol=1e-9)


def test_a_score_that_is_not_a_number_gives_no_weights():
    assert np.isnan(in_numpy.sparsemax(np.array([1.0, math.nan]))).any()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_nothing_to_weigh(shape):
    assert in_numpy.sparsemax(np.zeros(shape)).shape == shape


@pytest.mark.parametrize("beta", [0.0, 1.0, 10.0, math.inf])
def test_update_and_similarity_are_those_of_the_hopfield_layers(beta):
    rng = np.random.default_rng(0)
    state, patterns = rng.standard_normal(8), rng.standard_normal((5, 8))
    asked = torch.from_numpy(state), torch.from_numpy(patterns), beta
    np.testing.assert_allclose(in_numpy.update(state, patterns, beta=beta), functional.update(*asked).numpy(), atol=1e-9)
    found = in_numpy.similarity(patterns @ state, beta=beta)
    np.testing.assert_allclose(found, functional.similarity(*asked)[0].numpy(), atol=1e-9)
