import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.hopfield.energy import converge, energy, update
from tests.hopfield.memories import memories

BETA = st.floats(0.05, 50)


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
