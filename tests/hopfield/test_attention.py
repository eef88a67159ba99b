import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.hopfield.attention import retrieve, split
from langgraph_convcoa.hopfield.energy import converge, energy, similarity, update
from tests.hopfield import plain_loops
from tests.hopfield.memories import memories

NAMES = ["sparsemax", "entmax15", "softmax", "softmax_1"]
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


@given(memories(), BETA, st.integers(1, 14), st.data())
def test_each_chunk_comes_out_as_if_it_were_alone_or_the_others_masked(memory, beta, chunks, data):
    query, stored = memory
    m, n = len(query), len(stored)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=m * n, max_size=m * n))).view(m, n)
    parts, part_mask = split(stored, chunks, mask)
    together = retrieve(query.unsqueeze(-3), parts, beta=beta, mask=part_mask, update_steps=2)
    size = math.ceil(n / chunks)
    assert together.state.shape == (chunks, m, query.shape[-1])
    for i in range(chunks):
        here = (torch.arange(n) // size) == i
        masked = retrieve(query, stored, beta=beta, mask=mask & here, update_steps=2)
        torch.testing.assert_close(together.state[i], masked.state, atol=1e-9, rtol=0)
        if here.any():
            alone = retrieve(query, stored[here], beta=beta, mask=mask[:, here], update_steps=2)
            torch.testing.assert_close(together.state[i], alone.state, atol=1e-9, rtol=0)
            torch.testing.assert_close(together.weights[i, :, : int(here.sum())], alone.weights, atol=1e-9, rtol=0)


@given(memories(), st.integers(1, 14))
def test_chunks_equal_the_whole_where_they_must(memory, chunks):
    query, stored = memory
    parts, mask = split(stored, 1)
    one = retrieve(query.unsqueeze(-3), parts, mask=mask)
    torch.testing.assert_close(one.state[0], retrieve(query, stored).state, atol=1e-12, rtol=0)
    # At beta = infinity each chunk gives its best pattern, and the best of the best is the best of all.
    parts, mask = split(stored, chunks)
    z = retrieve(query.unsqueeze(-3), parts, beta=math.inf, mask=mask).state
    similarities = (z * query).sum(dim=-1).masked_fill(~mask.any(dim=-1), -math.inf)
    whole, _ = similarity(query, stored, math.inf)
    torch.testing.assert_close(similarities.amax(dim=0), whole, atol=1e-9, rtol=0)


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
    with pytest.raises(ValueError, match="chunks"):
        split(x, 0)
