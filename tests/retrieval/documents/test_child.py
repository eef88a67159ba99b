"""A process that is asked over pipes: what a signal of the terminal and an interrupted call do to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.actions.tables.process import EngineProcess
from langgraph_convcoa.retrieval.documents.worker import Workers
from langgraph_convcoa.text.words import words
from tests.bounds import SECONDS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")


@pytest.fixture
def alarm() -> Iterator[None]:

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _groups() -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent, group = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1:3]
        except OSError:
            continue
        if int(parent) == os.getpid():
            found.add(int(group))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_ctrl_c_at_the_terminal_reaches_no_process_that_waits_for_its_next_call(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("n\n1\n", encoding="utf-8")
    with Workers() as workers, closing(EngineProcess("duckdb", files={"a": table})) as engine:
        assert workers.call(words, "one", seconds=SECONDS) == ["one"]
        assert engine.run("SELECT n FROM a", 1, SECONDS).rows == (("1",),)
        groups = _groups()
        assert len(groups) >= 2
        assert os.getpgid(0) not in groups


def test_the_reply_of_an_interrupted_call_is_none_to_the_next(alarm: None) -> None:
    with Workers() as workers:
        workers.start()
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            workers.call(_sleep, SECONDS, seconds=SECONDS)
        assert workers.call(words, "the next", seconds=SECONDS) == ["the", "next"]


def _sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)
