"""Worker processes, which read what others wrote within limits of time and memory, and are killed at them."""

from __future__ import annotations

import os
import queue
import signal
import sys
import weakref
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from langgraph_convcoa.errors import ConvCoAError, InputError
from langgraph_convcoa.retrieval.documents.child import Child, EndedError, pipes, receive, send

_START_SECONDS = 120.0
_PATIENCE = 4
"""So many times the processor's seconds may pass by the clock, since a busy machine gives a worker a part of them only."""
_CALLS = 500
"""After so many calls a worker is replaced: parsers keep caches, which would end in its limit of memory."""
_PACKAGE = __name__.partition(".")[0]
_Answer = dict[str, Any]


class LimitError(ConvCoAError):
    """A call took too long or too much memory, or ended its process."""


class Workers:
    """Processes that each run one call at a time; they start with the first one and stay for later ones.

    A call is of a function at the top of a module of this package. What it takes and returns is JSON, or bytes in it, so that
    a worker that a document has got hold of cannot make this process run anything. At a limit the worker is killed, and the
    next call starts another. Threads may share the workers, which end with their owner or with this process.

    Args:
        count: Workers at a time.
        megabytes: Of memory for each, beyond what it has at its start; where the system has such limits (Linux).
        prepare: A function without arguments, called in each new worker: imports, which are no call's own time.

    Example:
        >>> from langgraph_convcoa.text.words import words
        >>> with Workers() as workers:
        ...     workers.call(words, "It is so.", seconds=5)
        ['it', 'is', 'so']
    """

    def __init__(self, count: int = 1, *, megabytes: int = 400, prepare: Callable[[], Any] | None = None) -> None:
        if count < 1 or megabytes < 1:
            raise InputError(f"there must be at least 1 worker of 1 MB, not {count} of {megabytes}")
        self.megabytes, self.prepare = megabytes, prepare
        self._free: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self._alive: set[_Worker] = set()
        for _ in range(count):
            self._free.put(None)
        weakref.finalize(self, _end, self._alive)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start a worker, where there is none yet; RetrievalError where its preparation fails."""
        self.call(_ready, seconds=_START_SECONDS)

    def close(self) -> None:
        """End the workers; a later call starts others."""
        _end(self._alive)

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What the function returns for these arguments.

        Raises:
            LimitError: It took more than `seconds` of the processor (on Windows: of time) or too much memory, or ended its
                process.
            ConvCoAError: As the function raises it; any other of its errors is a LimitError with its type.
        """
        worker = self._free.get()
        try:
            if worker is None or not worker.usable:
                worker = _Worker(self.megabytes)
                self._alive.add(worker)
                started = worker.call(self.prepare or _ready, (), _START_SECONDS, returns=False)
                if "error" in started:
                    worker.end()
                    raise _raised(started)
            answer = worker.call(function, arguments, seconds)
        finally:
            if worker is not None and not worker.usable:
                worker.end()
                self._alive.discard(worker)
                worker = None
            self._free.put(worker)
        if "error" in answer:
            raise _raised(answer)
        return answer["value"]


class _Worker:
    """A process, used by one thread at a time."""

    def __init__(self, megabytes: int) -> None:
        self._child = Child(__name__, f"serve({megabytes})")
        self._calls = 0
        self._full = False

    @property
    def usable(self) -> bool:
        return self._child.usable and self._calls < _CALLS and not self._full

    def call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float, *, returns: bool = True
    ) -> _Answer:
        message = [function.__module__, function.__qualname__, list(arguments), seconds, returns]
        try:
            answer: _Answer = self._child.ask(message, seconds * (_PATIENCE if os.name == "posix" else 1))
        except EndedError as error:
            spent = error.late or error.status == -getattr(signal, "SIGXCPU", signal.SIGABRT)
            told = f"takes longer than {seconds:.3g} s to read" if spent else "ended the process that read it"
            return {"error": "", "message": told}
        self._calls += 1
        self._full = "memory" in answer
        return answer

    def end(self) -> None:
        self._child.end()


def serve(megabytes: int) -> None:
    """Answer the calls that come by standard input until it ends: what a worker runs."""
    calls, answers = pipes()
    _limit_memory(megabytes)
    while True:
        try:
            module, name, arguments, seconds, returns = receive(calls)
        except EOFError:
            return
        _limit_seconds(seconds)
        answer: _Answer
        try:
            value = getattr(import_module(module), name)(*arguments)
            send(answers, {"value": value if returns else None})
            continue
        except MemoryError:
            value = None
            answer = {"error": "", "message": f"takes more than {megabytes} MB of memory to read", "memory": True}
        except ConvCoAError as error:
            answer = {"error": type(error).__name__, "module": type(error).__module__, "message": str(error)}
        except RecursionError:
            answer = {"error": "", "message": "is nested too deeply to be read"}
        except Exception as error:  # noqa: BLE001 - a fault of the parser's own, of which the caller hears
            answer = {"error": "", "message": f"cannot be read ({type(error).__name__})"}
        send(answers, answer)


def _limit_memory(megabytes: int) -> None:
    try:
        import resource

        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        limit = held + megabytes * 1_000_000
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        return


def _limit_seconds(seconds: float) -> None:
    """Seconds of the processor, after which the system ends this worker, also where its owner is gone."""
    try:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, most))
    except (ImportError, OSError, ValueError):
        return


def _raised(answer: _Answer) -> ConvCoAError:
    """The error of an answer; only of a class of this package that is there already."""
    kind = getattr(sys.modules.get(str(answer.get("module"))), str(answer["error"]), None) if answer["error"] else None
    if isinstance(kind, type) and issubclass(kind, ConvCoAError) and kind.__module__.startswith(f"{_PACKAGE}."):
        return kind(answer["message"])
    return LimitError(answer["message"])


def _ready() -> None:
    """What a worker without a preparation is asked first: the answer shows that it has started."""


def _end(workers: set[_Worker]) -> None:
    for worker in list(workers):
        worker.end()
