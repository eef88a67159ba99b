from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.text.kept import kept_by_characters
from langgraph_convcoa.text.same_question import meaning
from langgraph_convcoa.text.terms import _contents
from tests.bounds import joined


@given(st.lists(st.text(max_size=200), max_size=60))
def test_what_is_kept_is_bounded_and_right(texts: list[str]) -> None:
    made: list[str] = []

    @kept_by_characters(1_000)
    def doubled(text: str) -> str:
        made.append(text)
        return text * 2

    assert [doubled(text) for text in texts] == [text * 2 for text in texts]
    if sum(len(text) + 100 for text in set(texts)) <= 1_000:
        assert len(made) == len(set(texts))


def test_the_oldest_goes_first_and_what_is_too_long_at_once() -> None:
    made: list[str] = []
    keep = kept_by_characters(1_000)(lambda text: made.append(text) or text)
    for text in ["a" * 150, "b" * 150, "c" * 150, "d" * 150, "e" * 150, "b" * 150, "a" * 150, "x" * 251, "x" * 251]:
        keep(text)
    assert [text[0] for text in made] == ["a", "b", "c", "d", "e", "a", "x", "x"]
    made.clear()
    keep("a" * 150)
    assert made == []


def test_threads_share_it() -> None:
    keep = kept_by_characters(2_000)(lambda text: [text])

    def use(n: int) -> None:
        for i in range(3_000):
            assert keep(f"{(n + i) % 60}") == [f"{(n + i) % 60}"]

    threads = [threading.Thread(target=use, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    joined(threads)


class _Made:
    pass


def test_what_goes_is_given_free() -> None:
    alive: weakref.WeakSet[_Made] = weakref.WeakSet()

    @kept_by_characters(100_000)
    def make(text: str) -> _Made:
        made = _Made()
        alive.add(made)
        return made

    for n in range(2_000):
        make(f"{n}" + "x" * 10_000)
    gc.collect()
    assert len(alive) <= 10


@pytest.mark.parametrize("function", [meaning, _contents])
def test_what_is_made_of_texts_of_any_length_is_kept_so(function: Callable[[str], object]) -> None:
    assert hasattr(function, "__wrapped__")
    assert not hasattr(function, "cache_info")
