"""The files of an index that are not its database: rows of patterns after a header, and the lock of the one writer."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

from langgraph_convcoa.errors import RetrievalError

FILE_VERSION = 1
"""Version of the pattern file."""

_MAGIC = b"CONVCOAP"
# Magic, version, generation, type, length of a row in numbers, id of the index; then a checksum of these.
_FIELDS = struct.Struct("<8sII16sI16s")
_HEADER_BYTES = 64
_STORED = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2", "int8": "i1"}
_LOCK = "writer.lock"
_HOLDER = "writer.pid"


@dataclass(frozen=True)
class RowFile:
    """Rows of numbers in one file: a header of 64 bytes, then the rows, appended and never changed.

    How many rows count is said by the database, so that what a killed writer left behind them is ignored, and written over by
    the next one.

    Attributes:
        path: The file.
        index: 32 hexadecimal digits that the files of one index share, so that no file of another passes for its own.
        generation: Which rewriting of the index the file belongs to.
        dtype: "float32", "float16", "bfloat16" or "int8".
        columns: Numbers in a row.
    """

    path: Path
    index: str
    generation: int
    dtype: str
    columns: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(np.dtype(_STORED[self.dtype]).itemsize * self.columns)

    def create(self) -> None:
        """Make the file, with no rows; one that is there already is written over."""
        with self.path.open("wb") as stream:
            stream.write(self._header())
            os.fsync(stream.fileno())

    def check(self, rows: int) -> None:
        """See that the file is the one that the index speaks of, and holds so many rows.

        Raises:
            FileNotFoundError: There is no such file.
            RetrievalError: The header is another's or damaged, or the file is cut short.
        """
        with self.path.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
            size = os.fstat(stream.fileno()).st_size
        if header != self._header():
            raise RetrievalError(f"{self.path} {self._complaint(header)}; restore it from a copy, or build the index again.")
        self.check_size(rows, size)

    def check_size(self, rows: int, size: int | None = None) -> None:
        """Raise RetrievalError when the file is too short for so many rows."""
        held = self.path.stat().st_size if size is None else size
        needed = _HEADER_BYTES + rows * self.row_bytes
        if held < needed:
            raise RetrievalError(
                f"{self.path} is cut short: it has {held} of {needed} bytes; restore it from a copy, or build the index again."
            )

    def write(self, start: int, rows: npt.NDArray[Any]) -> None:
        """Put rows after the first `start` ones, in place of whatever is there, and on the disk."""
        place = _HEADER_BYTES + start * self.row_bytes
        with self.path.open("r+b", buffering=0) as stream:
            stream.truncate(place)
            stream.seek(place)
            data = np.ascontiguousarray(rows, dtype=_STORED[self.dtype]).reshape(-1).view(np.uint8).data
            while data:
                data = data[stream.write(data) :]
            os.fsync(stream.fileno())

    def map(self, rows: int) -> npt.NDArray[Any]:
        """The first rows, (rows, columns), mapped and not read."""
        shape = (rows, self.columns)
        if rows == 0:
            return np.zeros(shape, dtype=_STORED[self.dtype])
        # As a plain array: every slice of a memmap is a memmap, which is slow to make.
        return np.memmap(self.path, dtype=_STORED[self.dtype], mode="r", offset=_HEADER_BYTES, shape=shape).view(np.ndarray)

    def _header(self) -> bytes:
        identity = bytes.fromhex(self.index)
        fields = _FIELDS.pack(_MAGIC, FILE_VERSION, self.generation, self.dtype.encode(), self.columns, identity)
        return (fields + struct.pack("<I", zlib.crc32(fields))).ljust(_HEADER_BYTES, b"\0")

    def _complaint(self, header: bytes) -> str:
        if len(header) < _HEADER_BYTES:
            return "is cut short"
        magic, version, generation, dtype, columns, identity = _FIELDS.unpack_from(header)
        if magic != _MAGIC:
            return "is no pattern file or is damaged"
        if struct.unpack_from("<I", header, _FIELDS.size)[0] != zlib.crc32(header[: _FIELDS.size]):
            return "has a damaged header"
        if version != FILE_VERSION:
            return f"is of version {version}, and this library reads version {FILE_VERSION}"
        if identity.hex() != self.index:
            return "belongs to another index"
        kind = dtype.rstrip(b"\0").decode("ascii", "replace")
        return (
            f"holds {columns} x {kind} of generation {generation} where "
            f"{self.columns} x {self.dtype} of generation {self.generation} is needed"
        )


def rows_checksum(rows: npt.NDArray[Any], before: int = 0) -> int:
    """CRC-32 of rows as they lie in memory, after what `before` is the checksum of."""
    return zlib.crc32(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data, before)


class WriterLock:
    """The right to write to an index: one thread of one process at a time; threads of one object wait for each other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            RetrievalError: Another process, or another object of this one, is writing; or the folder cannot be written to.
        """
        with self._threads:
            if self._depth:
                yield
                return
            lock = FileLock(self._folder / _LOCK, timeout=0, thread_local=False)
            try:
                lock.acquire()
            except Timeout:
                raise RetrievalError(
                    f"The index {self._folder} is being written to by {self._holder()}; try again when that has ended."
                ) from None
            except OSError as error:
                raise RetrievalError(
                    f"The index {self._folder} cannot be written to ({error.strerror}): check the permissions of the folder."
                ) from error
            self._depth = 1
            try:
                holder = {"pid": os.getpid(), "host": socket.gethostname()}
                with suppress(OSError):
                    (self._folder / _HOLDER).write_text(json.dumps(holder), encoding="utf-8")
                yield
            finally:
                self._depth = 0
                lock.release()

    def _holder(self) -> str:
        try:
            holder = json.loads((self._folder / _HOLDER).read_text(encoding="utf-8"))
            pid, host = int(holder["pid"]), str(holder["host"])
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
        if host != socket.gethostname():
            return f"process {pid} on {host}"
        return "this process, through another object" if pid == os.getpid() else f"process {pid}"


def flush_folder(folder: Path) -> None:
    """Put the names of a folder's files on the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
