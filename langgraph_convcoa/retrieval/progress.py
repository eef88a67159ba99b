"""Progress of long work: a bar or lines on standard error, a callback, or nothing. Also delays Ctrl-C until a step ends."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Progress = bool | str | Callable[[int, int], None]
"""True for a bar on standard error (a line every half minute if it is no terminal), False for silence, or a function that is
called with (done, total). A text shows the bar too, and is printed as advice if the work will take over a minute more."""

_LINE_EVERY = 30.0
# Advice is printed if work has taken over _ADVICE_AFTER seconds and will take over _LONG seconds more.
_ADVICE_AFTER, _LONG = 3.0, 60.0


@contextmanager
def track(progress: Progress, total: int | None, description: str) -> Iterator[Callable[[int], None]]:
    """Follow work of `total` steps; call the yielded function with the number of steps just done.

    With an unknown total (None), a callback is called with (done, done).
    """
    if progress is False or total == 0:
        yield lambda _steps: None
        return
    if progress is True or isinstance(progress, str):
        yield from _shown("" if progress is True else progress, total, description)
        return
    report, done = progress, 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, done if total is None else total)

    yield advance


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
                line = f"{description}: {int(task.completed)}" + ("" if total is None else f" of {total}")
                if total is not None and left is not None:
                    line += f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"
                console.out(line)

        yield show


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Hold back Ctrl-C and SIGTERM, and yield a function that returns True once a signal has come.

    After the context, a held signal is raised again. If its handler returns, KeyboardInterrupt follows. A second signal is not
    held back. Ignored signals (nohup) stay ignored. Outside of the main thread, no signal is held back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    held: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)
        restore()

    for number in before:
        signal.signal(number, hold)
    try:
        yield lambda: bool(held)
    finally:
        restore()
    if held:
        signal.raise_signal(signal.Signals(held[0]))
        raise KeyboardInterrupt
