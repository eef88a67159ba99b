"""Ctrl-C and SIGTERM, held back until the current step is finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Hold back Ctrl-C and SIGTERM, and yield a function that returns True once a signal has come.

    At the end of the context the signal is raised again, then KeyboardInterrupt. A second signal is not held back. Ignored
    signals (nohup) stay ignored. Outside of the main thread no signal is held back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    held: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
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
