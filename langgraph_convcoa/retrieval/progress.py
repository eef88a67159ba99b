"""Progress of long work: a bar on standard error, a callback, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = bool | Callable[[int, int], None]
"""True for a bar on standard error, False for silence, or a function called with (done, total)."""


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
        with Bar(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(description, total=total)
            yield lambda steps: bar.advance(task, steps)
        return
    report, done = progress, 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, done if total is None else total)

    yield advance
