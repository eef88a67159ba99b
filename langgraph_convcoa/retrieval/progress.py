"""Progress of long work: a bar or lines on standard error, a callback, or nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class LongWork:
    """A bar that also prints advice once the work is expected to take over a minute."""

    advice: str


Progress = bool | LongWork | Callable[[int, int], None]
"""True for a bar on standard error (a line every half minute if it is no terminal), False for silence, or a function that is
called with (done, total)."""

_LINE_EVERY = 30.0
# Seconds until the remaining time is known, and the remaining seconds from which advice is given.
_ADVICE_AFTER, _LONG = 3.0, 60.0


@contextmanager
def track(progress: Progress, total: int | None, description: str) -> Iterator[Callable[[int], None]]:
    """Follow work of `total` steps; call the yielded function with the number of steps just done.

    With an unknown total (None) a callback is called with (done, done).
    """
    if progress is False or total == 0:
        yield lambda _steps: None
        return
    if progress is True or isinstance(progress, LongWork):
        with _shown(progress.advice if isinstance(progress, LongWork) else "", total, description) as show:
            yield show
        return
    report, done = progress, 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, done if total is None else total)

    yield advance


@contextmanager
def _shown(advice: str, total: int | None, description: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True, soft_wrap=True)
    with Bar(*columns, console=console, get_time=lambda: time.monotonic(), speed_estimate_period=math.inf) as bar:
        bar.add_task(description, total=total)
        [task] = bar.tasks
        told, advised = time.monotonic(), not advice

        def show(steps: int) -> None:
            nonlocal told, advised
            bar.advance(task.id, steps)
            now, left = time.monotonic(), task.time_remaining
            if not advised and left is not None and left > _LONG and (task.elapsed or 0) > _ADVICE_AFTER:
                advised = True
                console.out(advice)
            if not console.is_terminal and now - told >= _LINE_EVERY:
                told = now
                console.out(_line(description, int(task.completed), total, left))

        yield show


def _line(description: str, done: int, total: int | None, left: float | None) -> str:
    """A line such as "Encoding: 512 of 2048, about 3 min left"; `left` is in seconds."""
    if total is None or left is None:
        return f"{description}: {done}" if total is None else f"{description}: {done} of {total}"
    return f"{description}: {done} of {total}, about {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'} left"
