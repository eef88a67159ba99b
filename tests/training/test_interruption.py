"""Ctrl-C in the middle of a training."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from langgraph_convcoa.retrieval.progress import interruptions


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_interrupts_nothing() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptions() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_what_was_cut_short_does_not_pass_as_finished_where_the_callers_handler_returns() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    with pytest.raises(KeyboardInterrupt), interruptions() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        assert not seen
    assert seen == [signal.SIGINT]
