import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.hopfield.functional import converge, energy, retrieve, update
from tests.hopfield import plain_loops
from tests.hopfield.memories import memories

NAMES = ["sparsemax", "entmax15", "softmax"]
BETA = st.floats(0.05, 50)


def identity(d):
    return torch.eye(d).tolist()


@given(memories(), BETA, st.sampled_from(NAMES), st.integers(1, 4))
def test_equals_plain_loops(memory, beta, name, steps):
    query, stored = memory
    found = retrieve(query, stored, beta=beta, activation=name, update_steps=steps, eps=0)
    expected = plain_loops.layer(
        query.tolist(), stored.tolist(), identity(query.shape[-1]), betas=[beta], activation=name, steps=steps
    )
    torch.testing.assert_close(found.state, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.weights @ stored, found.state)


@given(memories(), st.one_of(BETA, st.just(0.0), st.just(math.inf)))
def test_memory_retrieval_is_the_update_of_the_energy(memory, beta):
    query, stored = memory
    torch.testing.assert_close(retrieve(query, stored, beta=beta).state, update(query, stored, beta), atol=1e-12, rtol=0)


@given(memories(), BETA)
def test_several_steps_are_the_update_repeated_and_lower_the_energy(memory, beta):
    query, stored = memory
    four = retrieve(query, stored, beta=beta, update_steps=4, eps=0).state
    by_hand = converge(lambda x: update(x, stored, beta), query, max_steps=4, eps=0).state
    torch.testing.assert_close(four, by_hand, atol=1e-9, rtol=0)
    one = retrieve(query, stored, beta=beta).state
    assert (energy(four, stored, beta) <= energy(one, stored, beta) + 1e-9).all()


def test_eps_stops_a_query_that_has_converged_and_no_other():
    stored = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    query = torch.tensor([[1.0, 0.0], [0.55, 0.45]], dtype=torch.float64)
    steps = [retrieve(query, stored, beta=1.5, update_steps=n, eps=0).state for n in (1, 2, 9)]
    loose = retrieve(query, stored, beta=1.5, update_steps=9, eps=0.05).state
    assert torch.equal(loose[0], stored[0])
    # The second query moves by 0.035 in its first step, and then makes one more.
    torch.testing.assert_close(loose[1], steps[1][1])
    assert not torch.allclose(loose[1], steps[2][1])


def test_a_query_that_may_retrieve_nothing_gets_zeros_and_zero_gradients():
    query, stored = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    for name in NAMES:
        for steps in (1, 3):
            found = retrieve(query, stored, activation=name, mask=mask, update_steps=steps)
            assert (found.state[1] == 0).all()
            assert (found.weights[1] == 0).all()
            (gradient,) = torch.autograd.grad(found.state.square().sum(), query)
            assert torch.isfinite(gradient).all()
            assert (gradient[1] == 0).all()


def test_bad_arguments():
    x = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="update_steps"):
        retrieve(x, x, update_steps=0)
    with pytest.raises(ValueError, match="Unknown activation"):
        retrieve(x, x, activation="relu")
