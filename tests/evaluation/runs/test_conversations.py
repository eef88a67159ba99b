"""Which conversations a run asks, and what history their questions have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import own_history, sample_conversations


def rows(sizes: list[int]) -> list[Query]:
    return [Query(f"{c}-{t}", "?", answer="x", conversation=f"c{c}") for c, size in enumerate(sizes) for t in range(size)]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.integers(1, 60), st.integers(0, 5))
def test_no_conversation_is_cut_and_none_too_many_is_drawn(sizes: list[int], sample: int, seed: int) -> None:
    chosen = sample_conversations(rows(sizes), sample, seed)
    assert chosen == sample_conversations(rows(sizes), sample, seed)
    assert all(len(one.questions) == sizes[int(one.id[1:])] for one in chosen.conversations)
    assert len(chosen) >= min(sample, sum(sizes))
    # Without any one of them it would be too few, if that one was the last chosen.
    assert len(chosen) - max(len(one.questions) for one in chosen.conversations) < sample
    assert [one.id for one in chosen.conversations] == sorted(
        (one.id for one in chosen.conversations), key=lambda n: int(n[1:])
    )


def test_all_without_a_sample_and_another_draw_with_another_seed() -> None:
    queries = rows([1] * 50)
    assert len(sample_conversations(queries)) == 50
    assert sample_conversations(queries, 10, 0).digest() != sample_conversations(queries, 10, 1).digest()


def test_a_conversation_without_any_answer_is_left_out_and_one_with_some_is_asked_whole() -> None:
    queries = [
        Query("a1", "?", conversation="a"),
        Query("b1", "?", conversation="b"),
        Query("b2", "?", answer="x", conversation="b"),
    ]
    chosen = sample_conversations(queries)
    assert ([one.id for one in chosen.conversations], len(chosen), chosen.left_out) == (["b"], 2, 1)
    assert chosen.conversations[0].questions[0].references == ()
    with pytest.raises(InputError, match="no question with an answer"):
        sample_conversations(queries[:2])


def test_turns_are_put_in_order_where_they_are_numbered() -> None:
    queries = [Query(str(n), "?", answer="x", conversation="a", extra={"turn": n}) for n in (3, 1, 2)]
    assert [one.id for one in sample_conversations(queries).conversations[0].questions] == ["1", "2", "3"]


def asked(id_: str, question: str, *history: tuple[str, str]) -> Query:
    return Query(id_, question, history)


@pytest.mark.parametrize(("one", "two"), [("Who?", "why? "), ("Why?", "Why?")], ids=["other words", "the same words twice"])
def test_own_answers_take_the_place_of_gold_ones(one: str, two: str) -> None:
    first, second = asked("1", one), asked("2", "Why?", (one, "gold 1"))
    third = asked("3", "When?", (one, "gold 1"), (two, "gold 2"))
    assert own_history(third, [first, second], {"1": "own 1", "2": "own 2"}) == ((one, "own 1"), (two, "own 2"))


def test_what_was_not_asked_in_the_run_stays_as_it_is_told() -> None:
    second = asked("2", "Why?", ("Hello?", "Hi."))
    third = asked("3", "When?", ("Hello?", "Hi."), ("Why?", "gold"))
    assert own_history(second, [], {}) == (("Hello?", "Hi."),)
    assert own_history(third, [second], {"2": "own"}) == (("Hello?", "Hi."), ("Why?", "own"))


def test_a_window_of_the_history_stays_a_window_and_a_failed_turn_is_left_out() -> None:
    first, second = asked("1", "Who?"), asked("2", "Why?", ("Who?", "a"))
    window = asked("3", "So?", ("Why?", "b"))
    assert own_history(window, [first, second], {"1": "x", "2": "y"}) == (("Why?", "y"),)
    assert own_history(window, [first, second], {"1": "x", "2": None}) == ()
