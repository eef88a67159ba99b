"""The losses against plain loops, against retrieval's own scores, and their gradients against differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from langgraph_convcoa.retrieval.patterns import Patterns
from langgraph_convcoa.retrieval.query.conversation_state import mixed_states
from langgraph_convcoa.retrieval.search import top_k
from langgraph_convcoa.training.losses import MemorySets, distillation_loss, dpr_loss, gated_states, memory_scores


def random_patterns(sizes: list[int], dimension: int, seed: int) -> Patterns:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(sum(sizes), dimension)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Patterns(rows, np.cumsum([0, *sizes], dtype=np.int64))


def random_states(count: int, dimension: int, seed: int) -> Tensor:
    return normalize(torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed)), dim=-1)


sizes_of_sets = st.lists(st.integers(2, 6), min_size=1, max_size=6)


@settings(deadline=None, max_examples=40)
@given(sizes_of_sets, st.integers(0, 99), st.sampled_from([0.0, 0.5, 10.0, 300.0, math.inf]))
def test_scores_are_those_that_retrieval_ranks_by(sizes: list[int], seed: int, beta: float) -> None:
    patterns, states = random_patterns(sizes, 5, seed), random_states(3, 5, seed)
    chosen = np.random.default_rng(seed + 1).permutation(len(sizes))
    scores = memory_scores(states, MemorySets.of(patterns, chosen), beta=beta)
    expected = np.empty(scores.shape)
    for row, ranking in enumerate(top_k(patterns, states.numpy(), k=len(sizes), beta=beta)):
        expected[row, ranking.indices] = ranking.scores
    np.testing.assert_allclose(scores.numpy(), expected[:, chosen], atol=2e-6)


def test_what_stands_beyond_a_sets_size_has_no_part_in_its_score() -> None:
    sets = MemorySets.of(random_patterns([2, 5], 4, 0), np.array([0, 1]))
    spoiled = MemorySets(sets.whole, sets.windows.masked_fill(~sets.mask.unsqueeze(-1), 1e6), sets.mask)
    states = random_states(2, 4, 1).requires_grad_()
    expected = memory_scores(states, sets)
    found = memory_scores(states, spoiled)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(score.sum(), states)[0] for score in (found, expected)))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 999), st.floats(0.1, 20))
def test_the_dpr_loss_is_that_of_a_plain_loop(queries: int, more: int, seed: int, scale: float) -> None:
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(queries, queries + more, generator=random, dtype=torch.float64)
    positives = torch.randperm(queries + more, generator=random)[:queries]
    gold = torch.rand(scores.shape, generator=random) < 0.3
    expected = 0.0
    for row in range(queries):
        own = int(positives[row])
        others = [c for c in range(queries + more) if c == own or not gold[row, c]]
        expected += math.log(sum(math.exp(scale * float(scores[row, c] - scores[row, own])) for c in others)) / queries
    assert dpr_loss(scores, positives, gold, scale=scale).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_masked_gold_set_has_no_gradient_and_a_negative_has() -> None:
    scores = torch.zeros(1, 3, requires_grad=True)
    dpr_loss(scores, torch.tensor([0]), torch.tensor([[True, True, False]])).backward()
    assert scores.grad is not None
    assert scores.grad[0, 1] == 0
    assert scores.grad[0, 2] > 0 > scores.grad[0, 0]


def test_distillation_is_least_at_the_targets_and_does_not_move_them() -> None:
    targets = random_states(4, 6, 3).requires_grad_()
    states = random_states(4, 6, 4).requires_grad_()
    loss = distillation_loss(states, targets)
    loss.backward()
    assert targets.grad is None
    assert states.grad is not None
    there = targets.detach()
    assert distillation_loss(there, targets) < loss
    assert distillation_loss(there, targets, contrast=0).item() == pytest.approx(0, abs=1e-6)


def test_equal_targets_are_no_negatives_of_each_other() -> None:
    targets = random_states(3, 4, 0)[[0, 0, 1]]
    states = random_states(3, 4, 9)
    expected = 0.0
    for row, (own, columns) in enumerate([(0, [0, 2]), (0, [1, 2]), (2, [0, 1, 2])]):
        expected -= torch.log_softmax(20 * targets[columns] @ states[row], dim=0)[own].item() / 3
    assert distillation_loss(states, targets, cosine=0).item() == pytest.approx(expected, abs=1e-5)


def test_an_empty_batch_costs_nothing() -> None:
    assert dpr_loss(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)).item() == 0
    assert distillation_loss(torch.zeros(0, 3), torch.zeros(0, 3)).item() == 0


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 99), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_gated_states_are_those_that_are_searched_with(seed: int, state_weight: float, gate: float) -> None:
    encoded, questions, states = (random_states(4, 5, seed + 100 * part) for part in range(3))
    # One that means what it says, and one whose direction is the opposite.
    encoded[0] = questions[0] = torch.eye(5)[0]
    questions[1] = -encoded[1]
    found = gated_states(encoded, questions, states, state_weight, gate)
    expected = mixed_states(encoded.numpy(), questions.numpy(), states.numpy(), state_weight, gate)
    # Without any state, a question that means what it says has no direction.
    rows = slice(1 if gate and not state_weight else 0, None)
    np.testing.assert_allclose(found[rows].numpy(), expected[rows], atol=2e-6)


@pytest.mark.parametrize("gate", [0.0, 0.5, 1.0, 2.0])
def test_gradients_of_the_loss_through_the_gate(gate: float) -> None:
    sets = MemorySets.of(random_patterns([3, 2, 4], 5, 0), np.arange(3))
    sets = MemorySets(sets.whole.double(), sets.windows.double(), sets.mask)
    encoded, questions, states = (random_states(3, 5, seed).double() for seed in (1, 2, 3))

    def loss(found: Tensor) -> Tensor:
        mixed = gated_states(normalize(found, dim=-1), questions, states, 0.1, gate)
        return dpr_loss(memory_scores(mixed, sets, beta=3.0), torch.tensor([0, 2, 1]), scale=5.0)

    assert torch.autograd.gradcheck(loss, [encoded.requires_grad_()])
    same = questions.clone().requires_grad_()
    loss(same).backward()
    assert same.grad is not None
    assert bool(same.grad.isfinite().all()), "where the query encoder says what the question says, too"
