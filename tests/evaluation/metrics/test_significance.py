import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_convcoa.evaluation.metrics import Sample, bootstrap_interval, paired_test


def sample(values, conversations=None):
    column = np.asarray(values, dtype=float)[:, None]
    return Sample(column, conversations or [str(n) for n in range(len(column))])


def test_the_interval_is_the_known_one_of_a_mean():
    values = np.random.default_rng(1).normal(0.5, 0.2, 400)
    low, high = bootstrap_interval([sample(values)], resamples=4000)
    half = 1.96 * values.std() / 20
    assert low[0] == pytest.approx(values.mean() - half, abs=0.003)
    assert high[0] == pytest.approx(values.mean() + half, abs=0.003)


def test_questions_of_one_conversation_are_drawn_together():
    # Ten conversations of ten equal questions are ten numbers, not a hundred.
    values = np.repeat(np.random.default_rng(1).normal(0.5, 0.2, 10), 10)
    alone = bootstrap_interval([sample(values)])
    together = bootstrap_interval([sample(values, [str(n // 10) for n in range(100)])])
    assert together[1] - together[0] > 2 * (alone[1] - alone[0])


def test_a_macro_interval_weighs_sources_alike():
    many, few = sample(np.zeros(1000)), sample(np.ones(10))
    assert [end[0] for end in bootstrap_interval([many, few])] == [0.5, 0.5]


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8))
@example([0, 0, -2, -3, 2, 3])
def test_the_test_tries_all_signs_of_few_conversations(differences):
    values = np.asarray(differences, dtype=float)
    sums = [abs(np.dot(signs, values)) for signs in itertools.product((-1, 1), repeat=len(values))]
    expected = np.mean([total >= abs(values.sum()) - 1e-9 for total in sums])
    assert paired_test([sample(values)])[0] == pytest.approx(expected)


def test_a_real_difference_is_found_and_none_is_not():
    generator = np.random.default_rng(1)
    noise, shift = generator.normal(0, 0.3, 300), generator.normal(0.1, 0.3, 300)
    both = Sample(np.stack([noise, shift], axis=1), [str(n) for n in range(300)])
    none, some = paired_test([both])
    assert none > 0.05
    assert some < 0.001
    # The same in one long conversation is one observation.
    assert paired_test([Sample(both.values, ["a"] * 300)]).tolist() == [1.0, 1.0]
    assert paired_test([sample(np.zeros(5))]).tolist() == [1.0]
