"""Time limits of waits, so that a test fails instead of waiting forever; processes and their memory use."""

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
"""Time limit, far above the time of any step on a busy machine."""


def kilobytes(line: str, process: int | str = "self") -> float:
    """The memory of a process in kB: `VmHWM` is the maximum so far, `VmRSS` the current value."""
    # `ru_maxrss` would count the memory of the parent process too; a worker of the tests has a gigabyte.
    status = dict(row.split(":", 1) for row in Path(f"/proc/{process}/status").read_text().splitlines())
    return float(status[line].split()[0])


def wait_until(there: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Wait until `there()` is true; another thread or process makes it true."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def joined(threads: Sequence[threading.Thread], seconds: float = SECONDS) -> None:
    """Wait for threads to end. Make them daemons; other threads would keep the test process from ending."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    assert [thread.name for thread in threads if thread.is_alive()] == []


def run_in_threads(calls: Iterable[Callable[[], object]]) -> None:
    """Run each call in its own thread, and wait for all."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    joined(threads)


def run_python(*arguments: object, seconds: float = 2 * SECONDS, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the repository's folder; returns the output. The exit code must be 0."""
    command = [sys.executable, *map(str, arguments)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def started(command: Sequence[str], seconds: float = 2 * SECONDS, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a process during a `with` block; at the end it is killed with its children."""
    # It is also killed after `seconds`, so that reading its output ends.
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
