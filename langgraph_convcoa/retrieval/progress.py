"""Progress of long work: a bar or lines on standard error, a callback, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = bool | Callable[[int, int], None]
"""True for a bar on standard error, False for silence, or a function called with (done, total).

Where standard error is no terminal, a line every half minute stands for the bar."""

_LINE_EVERY = 30.0


@contextmanager
def track(progress: Progress, total: int | None, description: str) -> Iterator[Callable[[int], None]]:
    """Follow work of `total` steps; the value given is a function that is called with the number of steps just done.

    An unknown total is None; a callback is then called with (done, done).

    Example:
        >>> seen = []
        >>> with track(lambda done, total: seen.append((done, total)), 3, "Encoding") as advance:
        ...     advance(1)
        ...     advance(2)
        >>> seen
        [(1, 3), (3, 3)]
    """
    if progress is False or total == 0:
        yield lambda _steps: None
        return
    if progress is True:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        with Bar(*columns, console=console) as bar:
            task = bar.add_task(description, total=total)
            told = started = time.monotonic()

            def show(steps: int) -> None:
                nonlocal told
                bar.advance(task, steps)
                if not console.is_terminal and time.monotonic() - told >= _LINE_EVERY:
                    told = time.monotonic()
                    console.out(progress_line(description, int(bar.tasks[0].completed), total, told - started))

            yield show
        return
    report, done = progress, 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, done if total is None else total)

    yield advance


def progress_line(description: str, done: int, total: int | None, seconds: float) -> str:
    """How far the work is after so many seconds, and how long the rest takes at that rate.

    Example:
        >>> progress_line("Encoding", 512, 2048, 60)
        'Encoding: 512 of 2048, about 3 min left'
    """
    if total is None or not done:
        return f"{description}: {done}" if total is None else f"{description}: {done} of {total}"
    left = seconds * max(total - done, 0) / done
    return f"{description}: {done} of {total}, about {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'} left"
