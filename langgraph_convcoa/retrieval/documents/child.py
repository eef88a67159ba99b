"""A Python process that answers messages over pipes, and is killed if a reply takes too long."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_VARIABLES = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TESSDATA_PREFIX", "TZ", "TMPDIR", "TEMP", "TMP",
    "SYSTEMROOT", "LD_LIBRARY_PATH",
)  # fmt: skip
"""Environment variables that a child process gets; no provider's key is among them."""
_LONGEST = 300_000_000
_BYTES = "\x00bytes"


class EndedError(Exception):
    """A process ended with `status` before it replied; `late` is True if it was killed at its time limit."""

    def __init__(self, status: int, *, late: bool) -> None:
        super().__init__(f"the process ended with {status}")
        self.status, self.late = status, late


class Child:
    """A process that imports a function from a module and runs `call`; the function gets its messages from `pipes`.

    A message is its length in 8 bytes, then JSON with encoded bytes. So a process that was taken over cannot make this one
    run code. The process gets only environment variables for paths, language and time zone, and no signals of the terminal.
    It ends when its standard input ends. Only one thread at a time may call `ask`.
    """

    def __init__(self, module: str, call: str, folder: Path | None = None) -> None:
        name = call.partition("(")[0]
        code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {name}; {call}"
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with no code of others
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
        """True if the process can be asked. A fork must not use the pipes, so there it is False."""
        return self._sound and self._owner == os.getpid()

    def ask(self, message: Any, seconds: float) -> Any:
        """Return the reply to a message. If there is no reply within `seconds`, kill the process and raise EndedError."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop)
        timer.daemon = True
        # An interrupted call leaves its reply in the pipe, where the next call would read it.
        self._sound = False
        timer.start()
        try:
            send(self._stdin, message)
            reply = receive(self._stdout)
        except (OSError, EOFError, ValueError, RecursionError):
            self._process.kill()
            raise EndedError(self._process.wait(), late=late.is_set()) from None
        finally:
            timer.cancel()
        self._sound = not late.is_set()
        return reply

    def end(self) -> None:
        """Kill the process, if this process started it."""
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
    if owner != os.getpid():
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
