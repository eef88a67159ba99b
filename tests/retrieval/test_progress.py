from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from langgraph_convcoa.retrieval import progress
from langgraph_convcoa.retrieval.progress import interruptions, track


def test_silence(capfd):
    with track(False, 3, "Work") as advance:
        advance(3)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_a_bar_goes_to_standard_error(capfd):
    with track(True, 3, "Encoding") as advance:
        advance(3)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "Encoding" in captured.err
    assert "3/3" in captured.err


def test_nothing_to_do_shows_nothing(capfd):
    calls = []
    with track(True, 0, "Encoding"), track(lambda done, total: calls.append(done), 0, "Encoding"):
        pass
    assert capfd.readouterr().err == ""
    assert calls == []


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


def test_without_a_terminal_there_is_a_line_every_half_minute(capfd, clock):
    with track(True, 400, "Encoding") as advance:
        for now in (10.0, 31.0, 40.0, 62.0):
            clock.now = now
            advance(50)
    lines = [line for line in capfd.readouterr().err.splitlines() if " left" in line]
    # From the first 50 on, before which a model may be loaded: 50 in 21 seconds, then 150 in 52.
    assert lines == ["Encoding: 100 of 400, about 2 min left", "Encoding: 200 of 400, about 70 s left"]


@pytest.mark.parametrize(("each", "advised"), [(5.0, True), (0.05, False)])
def test_long_work_says_once_how_to_do_without_it(each, advised, capfd, clock):
    with track("To avoid this the next time: convcoa index", 100, "Encoding") as advance:
        for _ in range(100):
            advance(1)
            clock.now += each
    said = capfd.readouterr().err
    assert said.count("convcoa index") == advised
    assert "100/100" in said


def test_work_that_fails_leaves_no_bar_behind(capfd):
    with pytest.raises(ZeroDivisionError), track("Advice", 3, "Encoding") as advance:
        advance(1)
        raise ZeroDivisionError
    with track("Advice", 3, "Encoding") as advance:
        advance(3)
    assert "3/3" in capfd.readouterr().err


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
