"""Progress of long work: a bar or lines on standard error, a callback, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class LongWork:
    """A bar, with advice once the work is expected to take over a minute."""

    advice: str


Progress = bool | LongWork | Callable[[int, int], None]
"""True for a bar on standard error (a line every half minute if it is no terminal), False for silence, or a function that is
called with (done, total)."""

_LINE_EVERY = 30.0
# Seconds until the remaining time is known, and the seconds that are long.
_ADVICE_AFTER, _LONG = 3.0, 60.0


@contextmanager
def track(
    progress: Progress, total: int | None, description: str, sizes: Sequence[int] | None = None
) -> Iterator[Callable[[int], None]]:
    """Follow work of `total` steps; call the yielded function with the number of steps just done.

    With an unknown total (None) a callback is called with (done, done). The remaining time is computed from the sizes of the
    steps, if they are given.
    """
    if progress is False or total == 0:
        yield lambda _steps: None
        return
    if progress is True or isinstance(progress, LongWork):
        advice = progress.advice if isinstance(progress, LongWork) else ""
        with _shown(advice, total, description, sizes) as show:
            yield show
        return
    report, done = progress, 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, done if total is None else total)

    yield advance


@contextmanager
def _shown(advice: str, total: int | None, description: str, sizes: Sequence[int] | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    count = TextColumn("{task.fields[done]}/" + ("?" if total is None else str(total)))
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    console = Console(stderr=True, soft_wrap=True)
    reached = None if sizes is None else [0, *accumulate(sizes)]
    whole = total if reached is None else reached[-1]
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(description, total=whole, done=0)
        told, advised, done = time.monotonic(), not advice, 0
        # A model may be loaded before the first step.
        began: tuple[float, int] | None = None

        def show(steps: int) -> None:
            nonlocal told, advised, done, began
            done += steps
            work = done if reached is None else reached[min(done, len(reached) - 1)]
            bar.update(task, completed=work, done=done)
            now = time.monotonic()
            began = began or (now, work)
            passed, rate = now - began[0], work - began[1]
            left = None if whole is None or not rate else passed * max(whole - work, 0) / rate
            if not advised and left is not None and passed > _ADVICE_AFTER and left > _LONG:
                advised = True
                console.out(advice)
            if not console.is_terminal and now - told >= _LINE_EVERY:
                told = now
                console.out(progress_line(description, done, total, left))

        yield show


def progress_line(description: str, done: int, total: int | None, left: float | None) -> str:
    """A line such as "Encoding: 512 of 2048, about 3 min left"; `left` is in seconds."""
    if total is None or left is None:
        return f"{description}: {done}" if total is None else f"{description}: {done} of {total}"
    return f"{description}: {done} of {total}, about {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'} left"
