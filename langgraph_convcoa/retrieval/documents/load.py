"""Documents from files and folders: text, Markdown, HTML, PDF, tables, JSON, books, Word, PowerPoint, and pictures of text."""

from __future__ import annotations

import gzip
import json
import logging
import math
import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from langchain_core.documents import Document

from langgraph_convcoa.errors import DocumentError, first_line
from langgraph_convcoa.retrieval.documents.formats import Piece, read_image, read_pdf, reads_pictures
from langgraph_convcoa.retrieval.documents.kinds import (
    IN_WORKER,
    PACKAGES,
    PICTURES,
    TEXTS,
    load_parser,
    missing,
    readable_suffixes,
    reason_against,
    suffix_of,
)
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers
from langgraph_convcoa.retrieval.progress import track
from langgraph_convcoa.text.clean import clean

logger = logging.getLogger(__name__)

MAX_BYTES = 50_000_000  # Default limit for the text of a run, in bytes.
_OTHERS_NAMED = 20
"""At most this many files of other kinds are named. The rest are counted: a folder of code may hold thousands."""
_READ_AT_ONCE, _LONGEST_PIECE = 8_000_000, 200_000
_SPOOLED_BYTES = 200_000  # If texts go to a spool, a worker reads every file above this size.
_IMPORT_SECONDS = 60.0
_SECONDS, _SECONDS_PER_MB = 3.0, 30.0  # A worker's time for a file, and its extra time for each megabyte.
_PACKAGE_SECONDS = 30.0  # A worker's time for a package, to which the time for its unpacked megabytes is added.
_PICTURES_SHARE = 3.0  # Clock time for reading pictures, as a multiple of a worker's seconds.
Told = Callable[[str, str], None]  # Called with a file's name, and the reason why the file or a part of it is not read.


def load_documents(
    path: str | os.PathLike[str], *, progress: bool = False, max_bytes: int = MAX_BYTES, told: Told | None = None
) -> list[Document]:
    r"""All documents of a file or folder; see `iter_documents`.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.md").write_text("# Energy\n\nAn energy falls.")
        >>> [(d.id, d.metadata["source"], d.metadata["title"]) for d in load_documents(folder)]
        [('a.md', 'a.md', 'Energy')]
    """
    return list(iter_documents(path, progress=progress, max_bytes=max_bytes, told=told))


def iter_documents(
    path: str | os.PathLike[str], *, progress: bool = False, max_bytes: int = MAX_BYTES, told: Told | None = None
) -> Iterator[Document]:
    """The documents of a file or folder, one file at a time.

    Each document has a stable `id`: its path below the root (with `:page-n` or `:row-n` for a part of a file), or the row's
    own id. Its metadata holds `source` (the path), `title`, and `page`, `sheet`, `chapter` or `row` if they apply. Rows of
    tables have `entities`, and infoboxes `triples`, for an evidence graph. Hidden files of a folder are skipped. Files that
    cannot be read are passed to `told`, or logged with a count at the end. Raises DocumentError if a single file cannot be
    read, or if there is more text than `max_bytes`. A worker process parses PDF, HTML and similar formats. It is killed
    after 3 s (.docx and other packages: 30 s) plus 30 s a megabyte, or at 400 MB. `progress` shows a bar on standard error.
    """
    skipped = Skipped(told)
    with DocumentFiles(path, max_bytes=max_bytes) as files:
        names = files.names(skipped)
        seen: Counter[str] = Counter()
        with track(progress and sys.stderr.isatty() and len(names) > 1, len(names), "Reading") as advance:
            for name in names:
                advance(1)
                try:
                    pieces = files.pieces(name, skipped.part)
                except TooMuchTextError:
                    raise
                except DocumentError as error:
                    if files.single:
                        raise DocumentError(f"{path} {error}") from error
                    skipped(name, str(error))
                    continue
                for piece in pieces:
                    yield document_of(piece, name, seen)
    skipped.end(len(names))
    if not seen:
        reason = f" (first reason: {skipped.first})" if skipped.first else ""
        raise DocumentError(f"no text could be read from {path}{reason}: {_accepted()}")


def read_file(
    path: str | os.PathLike[str], *, name: str = "", max_bytes: int = MAX_BYTES, workers: Workers | None = None
) -> tuple[list[Document], list[str]]:
    """The documents of one file, and the reasons why it or parts of it are not read.

    Args:
        path: The file.
        name: Name for ids, `source` and kind, if the file is stored under another name.
        max_bytes: Limit for the text, in bytes.
        workers: Worker processes that several calls share; None starts a worker for this call.
    """
    reasons = list[str]()
    with nullcontext(workers) if workers is not None else Workers() as used, TemporaryDirectory() as folder:
        found = stream_file(path, Spool(Path(folder, "texts")), used, name=name, max_bytes=max_bytes, told=reasons.append)
        return list(found), reasons


@dataclass(frozen=True)
class Spool:
    """A new file to which a worker writes the texts of a document file, and the limits for these texts."""

    path: Path  # The new file; not created for a small document file, which is read directly.
    seconds: float = math.inf  # Limit for the processor time of reading.
    texts: float = math.inf  # Largest number of texts in the file.
    progress: Callable[[int, int], None] = lambda _done, _total: None  # Called with the bytes read so far, and all bytes.


def stream_file(
    path: str | os.PathLike[str], spool: Spool, workers: Workers, *, name: str, max_bytes: int, told: Callable[[str], None]
) -> Iterator[Document]:
    """Like `read_file`, but yields one document at a time, and calls `told` with each reason."""
    place, seen = Path(path), Counter[str]()
    called = name or place.name
    try:
        pieces, size = _read(place, suffix_of(Path(called)), None, max_bytes, workers, spool)
    except DocumentError as error:
        told(str(error))
        return
    if size > max_bytes:
        told(f"holds more than {max_bytes / 1e6:g} MB of text: split it")
        return
    for piece in pieces:
        if piece.skipped:
            told(piece.skipped)
        if piece.text:
            yield document_of(piece, called, seen)


class Skipped:
    """Reports files that are not read: to a function, or in the log with a count at the end."""

    def __init__(self, told: Told | None = None) -> None:
        self.first, self._count, self._others = "", 0, 0
        self.part = told or _log_skipped
        """Reports that a part of a file is not read."""

    def __call__(self, name: str, reason: str) -> None:
        """Report that a file is not read."""
        self._count += 1
        self.first = self.first or f"{name} {reason}"
        self.part(name, reason)

    def other(self, name: str, reason: str) -> None:
        """Report a file of another kind; only the first 20 are named."""
        self._count, self._others = self._count + 1, self._others + 1
        if self._others <= _OTHERS_NAMED:
            self.part(name, reason)

    def end(self, read: int) -> None:
        """Log the number of skipped files; `read` is the number of files of kinds that can be read."""
        if self.part is _log_skipped and self._count:
            more = f", {self._others - _OTHERS_NAMED} of them not named" if self._others > _OTHERS_NAMED else ""
            logger.warning("skipped: %d of %d files%s", self._count, read + self._others, more)


def _log_skipped(name: str, reason: str) -> None:
    logger.warning("skipped: %s %s", name, reason)


class DocumentFiles:
    """The files of a path, and the texts of each file; `max_bytes` limits the text of all files together."""

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> None:
        self._root, self._max_bytes = Path(path).expanduser(), max_bytes
        self.single = True  # False for a folder.
        with suppress(OSError, ValueError):  # raised if the name is too long or not valid
            self.single = not self._root.is_dir()
        self._folder = self._root.parent if self.single else self._root
        self._used = 0
        self._workers = Workers()

    def __enter__(self) -> DocumentFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def names(self, skipped: Skipped | None = None) -> dict[str, Path]:
        """The files to read, by their paths below the folder; other files go to `skipped`. DocumentError if none is left."""
        skipped = skipped or Skipped(lambda _name, _reason: None)
        return {file.relative_to(self._folder).as_posix(): file for file in _files(self._root, skipped)}

    def pieces(self, name: str, told: Told) -> list[Piece]:
        """The texts of a file that are not blank; DocumentError if the file is unreadable, or the files exceed `max_bytes`."""
        file = self._folder / name
        left = self._max_bytes - self._used
        pieces, used = _read(file, suffix_of(file), None if self.single else self._folder, left, self._workers)
        if used > left:
            raise TooMuchTextError(
                f"{self._root} holds more than {self._max_bytes / 1e6:g} MB of text (the limit was reached at {name}): "
                "give fewer documents, or raise the limit (--max-mb on the command line, max_bytes in Python)"
            )
        self._used += used
        for piece in pieces:
            if piece.skipped:
                told(name, piece.skipped)
        return [piece for piece in pieces if piece.text]

    def forget(self) -> None:
        """Start again: text that was read before no longer counts towards the limit."""
        self._used = 0


class TooMuchTextError(DocumentError):
    """The files of a run hold more text than its limit."""


def _accepted() -> str:
    shown = [suffix for suffix in readable_suffixes() if suffix not in (".text", ".markdown", ".htm", ".jpeg", ".tif")]
    return f"accepted are {' '.join(suffix for suffix in shown if not suffix.endswith('.gz'))} (.json.gz and .jsonl.gz too)"


def _files(root: Path, skipped: Skipped) -> list[Path]:
    shown = str(root).replace("\x00", "?")[:200]
    try:
        if root.is_dir():
            return _walk(root, skipped)
        if root.is_file() and suffix_of(root):
            return [root]
        reason = reason_against(root) if root.is_file() else "is neither a file nor a folder"
        reason = reason if root.exists() else "does not exist"
    except (OSError, ValueError) as error:
        raise DocumentError(f"{shown} cannot be opened ({_reason(error)}): give another path") from error
    raise DocumentError(f"{shown} {reason}: {_accepted()}")


def _walk(root: Path, skipped: Skipped) -> list[Path]:
    found, others = [], 0

    def unreadable(error: OSError) -> None:
        logger.warning("skipped: folder %s cannot be opened (%s)", error.filename, _reason(error))

    for folder, subfolders, names in os.walk(root, onerror=unreadable):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if name.startswith("."):
                continue
            suffix = suffix_of(file)
            # Without tesseract, pictures count as files of another kind: most hold no text.
            if suffix and not (suffix in PICTURES and missing(suffix)):
                found.append(file)
            else:
                others += 1
                skipped.other(file.relative_to(root).as_posix(), missing(suffix) or reason_against(file))
    if not found:
        held = f"holds no file that can be read ({others} of other kinds)" if others else "is an empty folder"
        raise DocumentError(f"{root} {held}: {_accepted()}")
    return found


def read_pieces(path: str, suffix: str, limit: int, seconds: float) -> tuple[list[dict[str, Any]], int]:
    """The texts of a file as JSON data, and the bytes that count towards the limit; runs in a worker."""
    pieces, used = _parsed(path, suffix, limit, seconds)
    return [asdict(piece) for piece in pieces], used


def spool_pieces(path: str, suffix: str, limit: int, seconds: float, spool: str) -> tuple[int, int]:
    """Write the texts of a file as lines of JSON. Returns their number, and the bytes that count towards the limit."""
    pieces, used = _parsed(path, suffix, limit, seconds)
    count = 0
    with Path(spool).open("x", encoding="ascii") as lines:
        for piece in chain.from_iterable(map(_cut, pieces)):
            lines.write(f"{json.dumps(asdict(piece))}\n")
            count += 1
    return count, used


def _cut(piece: Piece) -> Iterator[Piece]:
    """Divide a long piece into parts, since an index encodes a whole document at once."""
    text, start, number = piece.text, 0, 1
    while start < len(text) or number == 1:
        end = len(text)
        if end - start > _LONGEST_PIECE:
            end = start + _LONGEST_PIECE
            ends = (text.rfind(mark, start + _LONGEST_PIECE // 2, end) for mark in ("\n\n", "\n", " "))
            end = next((found for found in ends if found > 0), end)
        part: dict[str, Any] = {
            "key": f"{piece.key}:part-{number}".lstrip(":"),
            "metadata": {**piece.metadata, "part": number},
        }
        yield replace(piece, text=text[start:end], **(part if number > 1 else {}))
        start, number = end, number + 1


def _spooled(spool: Spool) -> Iterator[Piece]:
    size, done = spool.path.stat().st_size, 0
    with spool.path.open(encoding="ascii") as lines:
        for line in lines:
            yield Piece(**json.loads(line))
            done += len(line)
            spool.progress(done, size)


def _parsed(path: str | Path, suffix: str, limit: int, seconds: float) -> tuple[list[Piece], int]:
    """The texts of a file that are not blank, with notes on skipped parts; and the bytes that count towards the limit."""
    with Path(path).open("rb") as stream:
        if suffix in TEXTS:
            data = _content(stream, suffix, limit)
            pieces = TEXTS[suffix](data) if len(data) <= limit else []
        elif suffix == ".pdf":
            end = time.monotonic() + seconds * _PICTURES_SHARE
            pieces = [*read_pdf(stream, limit, pictures_until=end if reads_pictures() else None)]
        elif suffix in PICTURES:
            pieces = [*read_image(stream, seconds * _PICTURES_SHARE)]
        else:
            pieces = [*PACKAGES[suffix](stream, limit)]
    used = len(data) if suffix in TEXTS else sum(len(piece.text) for piece in pieces)
    return [piece for piece in pieces if piece.text.strip() or piece.skipped], used


def _content(stream: BinaryIO, suffix: str, limit: int) -> bytes:
    """The unpacked bytes of a text file, at most one more than the limit."""
    data = bytearray()
    with gzip.GzipFile(fileobj=stream) if suffix.endswith(".gz") else stream as plain:
        # The file is read in parts: a read allocates all that it is asked for, and the limit may exceed a worker's memory.
        while len(data) <= limit and (part := plain.read(min(_READ_AT_ONCE, limit + 1 - len(data)))):
            data += part
    return bytes(data)


def _read(
    file: Path, suffix: str, folder: Path | None, limit: int, workers: Workers, spool: Spool | None = None
) -> tuple[Iterable[Piece], int]:
    """The texts of a file that are not blank, with notes on skipped parts; and the bytes that count towards the limit."""
    pieces: Iterable[Piece]
    try:
        if not suffix:
            raise DocumentError(reason_against(file))
        if needed := missing(suffix):
            raise DocumentError(needed)
        if not file.is_file():
            raise DocumentError("is not a regular file")
        if folder is not None and not file.resolve().is_relative_to(folder.resolve()):
            raise DocumentError("is a link to a file outside of the folder: copy the file, or give its own folder")
        size = file.stat().st_size
        seconds = (_PACKAGE_SECONDS if suffix in PACKAGES else _SECONDS) + _SECONDS_PER_MB * size / 1e6
        seconds = seconds if spool is None else min(seconds, spool.seconds)
        if size > min(IN_WORKER.get(suffix, size), size if spool is None else _SPOOLED_BYTES):
            # The file is opened here first, because a file that cannot be opened has an error message of its own.
            file.open("rb").close()
            workers.call(load_parser, suffix, seconds=_IMPORT_SECONDS)
            given = (str(file.absolute()), suffix, limit, seconds)
            if spool is not None:
                count, used = workers.call(spool_pieces, *given, str(spool.path.absolute()), seconds=seconds)
                pieces = _spooled(spool)
                if count > spool.texts:
                    raise DocumentError(f"holds more than {spool.texts:,} texts: split it")
            else:
                found, used = workers.call(read_pieces, *given, seconds=seconds)
                count = len(pieces := [Piece(**piece) for piece in found])
        else:
            pieces, used = _parsed(file, suffix, limit, seconds)
            count = len(pieces)
    except LimitError as error:
        raise DocumentError(f"{error}: split it, or export its text") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DocumentError("is a broken gzip file: make it again") from error
    except OSError as error:
        raise DocumentError(f"cannot be opened ({_reason(error)})") from error
    except RecursionError as error:
        raise DocumentError("is nested too deeply to be read") from error
    if not count and used <= limit:
        raise DocumentError("holds no text")
    return pieces, used


def document_of(piece: Piece, name: str, seen: Counter[str]) -> Document:
    """The document of a piece of a file; `seen` counts the ids of earlier pieces."""
    is_row = bool(piece.key) and not piece.metadata
    named = re.sub(r"[-_\s]+", " ", name.rsplit("/", 1)[-1].split(".", 1)[0]).strip()
    title = piece.title or ("" if is_row else named)
    return Document(
        page_content=_storable(piece.text),
        id=_identity(piece, name, seen),
        metadata={
            "source": _storable(name),
            "title": _storable(title),
            **{key: _storable(value) if isinstance(value, str) else value for key, value in piece.metadata.items()},
        },
    )


def _identity(piece: Piece, name: str, seen: Counter[str]) -> str:
    """The id of a piece: its own, or the file's name and the piece's key. A number is added if the id is taken."""
    identity = piece.key if piece.own_id else f"{name}:{piece.key}" if piece.key else name
    if identity in seen and piece.own_id:
        identity = f"{name}:{piece.key}"
    repeated = seen[identity]
    seen[identity] += 1
    if repeated:
        identity = f"{identity}:{repeated + 1}"
        seen[identity] += 1
    return _storable(identity)


def _storable(text: str) -> str:
    """The text in the form that every store takes, with plain line ends."""
    return clean(text).replace("\r\n", "\n").replace("\r", "\n")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or first_line(error)
