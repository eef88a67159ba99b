"""Worker processes that read untrusted files within limits of time and memory, and are killed at these limits."""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Self

from langgraph_convcoa.errors import ConvCoAError, InputError

_VARIABLES = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TESSDATA_PREFIX", "TZ", "TMPDIR", "TEMP", "TMP",
    "SYSTEMROOT", "LD_LIBRARY_PATH",
)  # fmt: skip
"""Environment variables that a child process gets; no provider's key is among them."""
_LONGEST = 300_000_000
_BYTES = "\x00bytes"
_START_SECONDS = 120.0
_PATIENCE = 4  # Wall-clock limit as a multiple of the CPU limit, for busy machines.
_CALLS = 500  # Calls until a worker is replaced: parsers' caches grow towards the memory limit.
_PACKAGE = __name__.partition(".")[0]


class EndedError(Exception):
    """A process ended with `status` before it replied; `late` is True if it was killed at its time limit."""

    def __init__(self, status: int, *, late: bool) -> None:
        super().__init__(f"the process ended with {status}")
        self.status, self.late = status, late


class Child:
    """A child process that runs `call`, a call of a function in `module`. The function reads its messages from `pipes`.

    A message is its length in 8 bytes, then JSON with encoded bytes. So a child that a document has taken over cannot make
    its parent run code. The child gets only environment variables for paths, language and time zone, and no signals of the
    terminal. It ends when its standard input ends. Only one thread at a time may call `ask`.
    """

    def __init__(self, module: str, call: str, folder: Path | None = None) -> None:
        name = call.partition("(")[0]
        code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {name}; {call}"
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with code of this package
            [sys.executable, "-I", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            cwd=folder,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _stop, process, self._owner)
        self._sound = True

    @property
    def usable(self) -> bool:
        """True if the process can be asked. False in a fork, which must not use the pipes."""
        return self._sound and self._owner == os.getpid()

    def ask(self, message: Any, seconds: float) -> Any:
        """Return the reply to a message. If there is no reply within `seconds`, kill the process and raise EndedError."""
        # The timer's thread may end later than this object, so it holds the process only.
        late, process = threading.Event(), self._process

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop)
        timer.daemon = True
        # An interrupted call leaves its reply in the pipe, where the next call would read it.
        self._sound = False
        timer.start()
        try:
            send(self._stdin, message)
            reply = receive(self._stdout)
        except (OSError, EOFError, ValueError, RecursionError):
            process.kill()
            raise EndedError(process.wait(), late=late.is_set()) from None
        finally:
            timer.cancel()
        self._sound = not late.is_set()
        return reply

    def end(self) -> None:
        """Kill the child process. In a fork of the parent, do nothing."""
        self._sound = False
        self._finalizer()


def pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return a child's pipes for messages and replies; its other reads and prints go to the null device."""
    messages, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    return messages, replies


def send(pipe: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = json.dumps(message, default=_encoded).encode()
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one message; EOFError at the end of the pipe, ValueError for malformed data."""
    size = int.from_bytes(_exactly(pipe, 8), "big")
    if size > _LONGEST:
        raise ValueError("the message is too long")
    return json.loads(_exactly(pipe, size), object_hook=_decoded)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} cannot go to a process")


def _decoded(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[_BYTES]) if isinstance(value.get(_BYTES), str) else value


def _stop(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner == os.getpid():
        process.kill()
        # The end of the block closes the pipes and waits. If a part of a message is unwritten, closing raises OSError.
        with suppress(OSError), process:
            pass


class LimitError(ConvCoAError):
    """A call took too long or too much memory, or ended its process."""


class Workers:
    """Processes that each run one call at a time. They start at the first call and stay for later calls.

    A call runs a top-level function of this package. Arguments and results are JSON and bytes, so a worker that a document
    has taken over cannot make its parent run anything. A worker is killed at a limit, and the next call starts another.
    Threads may share the workers. The workers end when this object is deleted, or when the parent process ends.

    There are `count` workers. On Linux, each worker may use `megabytes` more memory than at its start. A new worker first
    calls `prepare`, which has no arguments.
    """

    def __init__(self, count: int = 1, *, megabytes: int = 400, prepare: Callable[[], Any] | None = None) -> None:
        if count < 1 or megabytes < 1:
            raise InputError(f"there must be at least 1 worker of 1 MB, not {count} of {megabytes}")
        self.megabytes, self.prepare = megabytes, prepare
        self._free: queue.LifoQueue[Child | None] = queue.LifoQueue()
        self._calls: dict[Child, int] = {}  # Number of calls of each process.
        for _ in range(count):
            self._free.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start a worker if there is none; raises a ConvCoAError if its preparation fails."""
        self.call(os.getpid, seconds=_START_SECONDS)

    def close(self) -> None:
        """End the workers; a later call starts others."""
        for child in list(self._calls):
            child.end()

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Return the result of the function. A ConvCoAError is raised unchanged, and other errors as LimitError.

        LimitError also if the call takes too much memory or over `seconds` of processor time (Windows: clock time), or dies.
        """
        child = self._free.get()
        try:
            if child is None or not child.usable:
                child = Child(__name__, f"serve({self.megabytes})")
                # A process whose preparation fails is not kept. The time of its start does not count for the call.
                self._calls[child] = _CALLS
                self._ask(child, self.prepare or os.getpid, (), _START_SECONDS)
                self._calls[child] = 0
            return self._ask(child, function, arguments, seconds)
        finally:
            if child is not None and not (child.usable and self._calls[child] < _CALLS):
                child.end()
                del self._calls[child]
                child = None
            self._free.put(child)

    def _ask(self, child: Child, function: Callable[..., Any], arguments: Sequence[Any], seconds: float) -> Any:
        message = [function.__module__, function.__qualname__, list(arguments), seconds]
        try:
            answer: dict[str, Any] = child.ask(message, seconds * (_PATIENCE if os.name == "posix" else 1))
        except EndedError as error:
            spent = error.late or error.status == -getattr(signal, "SIGXCPU", signal.SIGABRT)
            raise LimitError(
                f"takes longer than {seconds:.3g} s to read" if spent else "ended the process that read it"
            ) from None
        self._calls[child] = _CALLS if "memory" in answer else self._calls[child] + 1
        if "error" not in answer:
            return answer["value"]
        # A worker may send any name of an error, so only an imported error class of this package is raised.
        kind = getattr(sys.modules.get(str(answer.get("module"))), str(answer["error"]), None)
        if isinstance(kind, type) and issubclass(kind, ConvCoAError) and kind.__module__.startswith(f"{_PACKAGE}."):
            raise kind(answer["message"])
        raise LimitError(answer["message"])


def serve(megabytes: int) -> None:
    """Answer calls from standard input until it ends. A worker process runs this function."""
    calls, answers = pipes()
    _limit_memory(megabytes)
    while True:
        try:
            module, name, arguments, seconds = receive(calls)
        except EOFError:
            return
        _limit_seconds(seconds)
        answer: dict[str, Any]
        try:
            send(answers, {"value": getattr(import_module(module), name)(*arguments)})
            continue
        except MemoryError:
            answer = {"error": "", "message": f"takes more than {megabytes} MB of memory to read", "memory": True}
        except ConvCoAError as error:
            answer = {"error": type(error).__name__, "module": type(error).__module__, "message": str(error)}
        except RecursionError:
            answer = {"error": "", "message": "is nested too deeply to be read"}
        except Exception as error:  # noqa: BLE001 - a fault of the parser, which the caller reports
            answer = {"error": "", "message": f"cannot be read ({type(error).__name__})"}
        send(answers, answer)


def _limit_memory(megabytes: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        limit = held + megabytes * 1_000_000
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_seconds(seconds: float) -> None:
    """Let the system end this worker after `seconds` of processor time, even if its owner is gone."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, most))
