"""Worker processes that read untrusted files within limits of time and memory, and are killed at these limits."""

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
"""Wall-clock limit as a multiple of the CPU limit, for busy machines."""
_CALLS = 500
"""Calls until a worker is replaced: parsers' caches grow towards the memory limit."""
_PACKAGE = __name__.partition(".")[0]
_Answer = dict[str, Any]


class LimitError(ConvCoAError):
    """A call took too long or too much memory, or ended its process."""


class Workers:
    """Processes that each run one call at a time. They start at the first call and stay for later calls.

    A call runs a top-level function of this package. Arguments and results are JSON and bytes, so a worker that a document
    has taken over cannot make this process run anything. A worker is killed at a limit, and the next call starts another.
    Threads may share the workers, which end with their owner or this process.

    There are `count` workers. On Linux each may use `megabytes` of memory more than at its start. A new worker first calls
    `prepare`, which has no arguments.
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
        """Start a worker if there is none; raises a ConvCoAError if its preparation fails."""
        self.call(_ready, seconds=_START_SECONDS)

    def close(self) -> None:
        """End the workers; a later call starts others."""
        _end(self._alive)

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Return the result of the function. A ConvCoAError is raised unchanged, and other errors as LimitError.

        Also LimitError for more than `seconds` of processor time (Windows: clock time), too much memory, or a dead process.
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


class _Worker(Child):
    """A process, used by one thread at a time."""

    def __init__(self, megabytes: int) -> None:
        super().__init__(__name__, f"serve({megabytes})")
        self._calls = 0
        self._full = False

    @property
    def usable(self) -> bool:
        return super().usable and self._calls < _CALLS and not self._full

    def call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float, *, returns: bool = True
    ) -> _Answer:
        message = [function.__module__, function.__qualname__, list(arguments), seconds, returns]
        try:
            answer: _Answer = self.ask(message, seconds * (_PATIENCE if os.name == "posix" else 1))
        except EndedError as error:
            spent = error.late or error.status == -getattr(signal, "SIGXCPU", signal.SIGABRT)
            told = f"takes longer than {seconds:.3g} s to read" if spent else "ended the process that read it"
            return {"error": "", "message": told}
        self._calls += 1
        self._full = "memory" in answer
        return answer


def serve(megabytes: int) -> None:
    """Answer calls from standard input until it ends. A worker process runs this function."""
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
        except Exception as error:  # noqa: BLE001 - a fault of the parser, which the caller reports
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
    """Let the system end this worker after `seconds` of processor time, even if its owner is gone."""
    try:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, most))
    except (ImportError, OSError, ValueError):
        return


def _raised(answer: _Answer) -> ConvCoAError:
    """The error in an answer: of its own class if that is an imported class of this package, otherwise a LimitError."""
    kind = getattr(sys.modules.get(str(answer.get("module"))), str(answer["error"]), None) if answer["error"] else None
    if isinstance(kind, type) and issubclass(kind, ConvCoAError) and kind.__module__.startswith(f"{_PACKAGE}."):
        return kind(answer["message"])
    return LimitError(answer["message"])


def _ready() -> None:
    """The first call of a worker without a preparation; the answer shows that it has started."""


def _end(workers: set[_Worker]) -> None:
    for worker in list(workers):
        worker.end()
