"""Bounds of tests: waits that end, so that a test that waits for what never comes fails; and what a process held at most."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import ROOT

SECONDS = 300
"""Far above what a step takes on a busy machine."""


def kilobytes(line: str, process: int | str = "self") -> float:
    """What the system tells of a process: `VmHWM` is the most that it held, `VmRSS` what it holds.

    Not `ru_maxrss`, which counts what the process that started this one held: a worker of the tests holds a gigabyte.
    """
    status = dict(row.split(":", 1) for row in Path(f"/proc/{process}/status").read_text().splitlines())
    return float(status[line].split()[0])


def wait_until(there: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Wait for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def joined(threads: Sequence[threading.Thread], seconds: float = SECONDS) -> None:
    """Wait for the end of threads, which are to be daemons, or they would keep the test process from ending."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    assert [thread.name for thread in threads if thread.is_alive()] == []


def run_in_threads(calls: Iterable[Callable[[], object]]) -> None:
    """Run each call in a thread of its own, to the end of all."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    joined(threads)


def run_python(*arguments: object, seconds: float = 2 * SECONDS, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the folder of the repository, to an end without an error; with what it printed."""
    command = [sys.executable, *map(str, arguments)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def started(command: Sequence[str], seconds: float = 2 * SECONDS, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process for a block, killed at the block's end with all that it started.

    It is killed too when it lasts longer than `seconds`, so that reading what it prints ends.
    """
    with subprocess.Popen(command, start_new_session=True, **options) as process:

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            kill()
