import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from langgraph_convcoa.hopfield.functional import conjugate, converge, energy, similarity, sparsemax, update
from tests.hopfield.memories import memories

BETA = st.floats(0.05, 50)
# A state (d) and stored patterns.
MEMORIES = memories().map(lambda memory: (memory[0][0], memory[1]))


@given(MEMORIES, BETA)
def test_a_step_lowers_the_energy_by_half_its_squared_length(memory, beta):
    x, patterns = memory
    after = update(x, patterns, beta)
    drop = energy(x, patterns, beta) - energy(after, patterns, beta)
    assert float(drop) >= 0.5 * float((x - after).square().sum()) - 1e-9


@given(MEMORIES, BETA)
def test_a_pattern_with_the_margin_is_retrieved_exactly(memory, beta):
    x, patterns = memory
    products = patterns @ x
    best = int(products.argmax())
    others = products[torch.arange(len(products)) != best]
    assume(len(others) == 0 or float(products[best] - others.max()) >= 1 / beta + 1e-9)
    assert torch.equal(update(x, patterns, beta), patterns[best])


def test_the_margin_is_tight():
    patterns = torch.eye(2, dtype=torch.float64)
    x = torch.tensor([0.6, 0.0], dtype=torch.float64)
    assert torch.equal(update(x, patterns, 1 / 0.59), patterns[0])
    assert not torch.equal(update(x, patterns, 1 / 0.61), patterns[0])


@given(MEMORIES, st.one_of(BETA, st.just(0.0), st.just(math.inf)))
def test_similarity_lies_between_the_mean_and_the_best_pattern(memory, beta):
    x, patterns = memory
    value, weights = similarity(x, patterns, beta)
    products = patterns @ x
    assert float(products.mean()) - 1e-9 <= float(value) <= float(products.max()) + 1e-9
    assert float(value) == pytest.approx(float(update(x, patterns, beta) @ x), abs=1e-9)
    assert float(weights.sum()) == pytest.approx(1)


@given(MEMORIES)
def test_similarity_is_the_mean_at_zero_and_the_best_at_infinity(memory):
    x, patterns = memory
    products = patterns @ x
    assert float(similarity(x, patterns, 0.0)[0]) == pytest.approx(float(products.mean()), abs=1e-9)
    assert float(similarity(x, patterns, math.inf)[0]) == pytest.approx(float(products.max()), abs=1e-9)


@given(MEMORIES)
def test_conjugate_is_as_the_paper_writes_it_and_its_gradient_is_sparsemax(memory):
    z = (memory[1] @ memory[0]).requires_grad_()
    weights = sparsemax(z.detach())
    support = weights > 0
    tau = float((z.detach()[support].sum() - 1) / support.sum())
    paper = 0.5 * (z.detach()[support].square() - tau**2).sum() + 0.5
    value = conjugate(z)
    value.backward()
    assert float(value.detach()) == pytest.approx(float(paper), abs=1e-8)
    torch.testing.assert_close(z.grad, weights, atol=1e-8, rtol=0)


def test_batches_and_masks():
    patterns = torch.eye(3)
    states = torch.tensor([[0.9, 0.2, 0.0], [0.0, 0.1, 0.8]])
    assert update(states, patterns, math.inf).tolist() == [[1, 0, 0], [0, 0, 1]]
    mask = torch.tensor([[False, True, True], [False, False, False]])
    assert update(states, patterns, math.inf, mask).tolist() == [[0, 1, 0], [0, 0, 0]]
    assert energy(states, patterns, 1.0).shape == (2,)


@pytest.mark.parametrize("beta", [0.0, math.inf, -1.0])
def test_energy_needs_a_finite_beta_above_zero(beta):
    with pytest.raises(ValueError, match="beta"):
        energy(torch.zeros(2), torch.eye(2), beta)


@given(memories(), BETA)
def test_the_drop_in_energy_bounds_the_number_of_steps(memory, beta):
    """Each step of length above eps costs eps^2 / 2 of energy, so at most 2 (E_0 - E_end) / eps^2 of them fit."""
    states, patterns = memory
    eps = 0.5
    end = converge(lambda x: update(x, patterns, beta), states, max_steps=10_000, eps=eps)
    spent = energy(states, patterns, beta) - energy(end.state, patterns, beta)
    assert end.converged.all()
    assert (end.steps - 1 <= 2 * spent / eps**2 + 1e-9).all()


@given(memories(), BETA)
def test_what_else_is_in_the_batch_changes_nothing(memory, beta):
    states, patterns = memory

    def run(x):
        return converge(lambda s: update(s, patterns, beta), x, max_steps=30, eps=1e-3)

    together = run(states)
    for i, state in enumerate(states):
        alone = run(state)
        torch.testing.assert_close(alone.state, together.state[i], atol=1e-9, rtol=0)


def test_counts_steps_and_says_what_did_not_converge():
    halve = lambda x: x / 2  # noqa: E731
    end = converge(halve, torch.tensor([[8.0], [0.5], [0.0]]), max_steps=4, eps=1.0)
    assert end.steps.tolist() == [3, 1, 1]
    assert end.state.tolist() == [[1.0], [0.25], [0.0]]
    assert end.converged.tolist() == [True, True, True]
    end = converge(halve, torch.tensor([[80.0], [0.5]]), max_steps=4, eps=1.0)
    assert (end.steps.tolist(), end.converged.tolist()) == ([4, 1], [False, True])
    untouched = converge(halve, torch.tensor([3.0]), max_steps=0)
    assert (untouched.state.tolist(), int(untouched.steps), bool(untouched.converged)) == ([3.0], 0, False)


def test_a_nan_never_counts_as_converged():
    end = converge(lambda x: x * math.nan, torch.ones(1, 2), max_steps=3)
    assert (end.steps.tolist(), end.converged.tolist()) == ([3], [False])


@pytest.mark.parametrize("bad", [{"max_steps": -1}, {"eps": -1.0}, {"eps": math.nan}])
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="0 or more"):
        converge(lambda x: x, torch.ones(2), **bad)
