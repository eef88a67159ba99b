from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from langgraph_convcoa.retrieval.threads import cores, workers
from tests.bounds import SECONDS


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    """The matrix library has two threads before, not the one of the other tests."""
    with threadpool_limits(2, "blas"):
        assert set(blas()) == {2}
        yield


def blas() -> list[int]:
    """Threads of numpy's library; scipy brings one of its own, which another test may load."""
    np.ones((2, 2)) @ np.ones((2, 2))
    return [library["num_threads"] for library in threadpool_info() if "numpy" in library["filepath"]]


@pytest.mark.parametrize("parallel", [False, True])
def test_the_matrix_library_has_one_thread_while_anyone_works(parallel):
    before = blas()
    with workers(parallel=parallel) as outer:
        with workers(parallel=parallel) as inner:
            inner(np.sum, [np.ones(3)])
        assert set(blas()) <= {1}
        outer(np.sum, [np.ones(3)])
    assert blas() == before


def test_two_that_overlap_leave_it_as_it_was():
    before = blas()
    first, second = threading.Event(), threading.Event()

    def short() -> None:
        with workers(parallel=False):
            first.set()
            assert second.wait(SECONDS)

    thread = threading.Thread(target=short)
    thread.start()
    assert first.wait(SECONDS)
    with workers(parallel=False):
        second.set()
        thread.join(SECONDS)
        assert set(blas()) <= {1}
    assert blas() == before


@pytest.mark.parametrize("parallel", [False, True])
def test_an_error_of_a_job_is_raised(parallel):
    before = blas()
    with pytest.raises(ZeroDivisionError), workers(parallel=parallel) as each:
        each(lambda number: 1 / number, [1, 0])
    assert blas() == before


@pytest.mark.parametrize(("told", "number"), [("3", 3), ("1", 1), ("0", None), ("many", None), ("", None)])
def test_as_many_threads_as_torch_would_take(monkeypatch, told, number):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = cores()
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert cores() == (number or every)
