"""Documents from files and folders: text, Markdown, HTML, PDF, tables, JSON, books, Word, PowerPoint, and pictures of text."""

from __future__ import annotations

import gzip
import io
import logging
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from langchain_core.documents import Document

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents import ocr
from langgraph_convcoa.retrieval.documents.formats import Piece, read_pdf
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

MAX_BYTES = 50_000_000
"""The default limit of the text of a run, in bytes."""

_OTHERS_NAMED = 20
"""Of the files whose kind is never read, so many are named and the rest counted: a folder of code may hold thousands."""
_READ_AT_ONCE = 8_000_000
_IMPORT_SECONDS = 60.0
_SECONDS, _SECONDS_PER_MB = 3.0, 30.0
"""A worker's time for a file: three seconds, and so many more for each megabyte of it."""
_PACKAGE_SECONDS = 30.0
"""For packages instead of the three, since it is what they unpack to that is read: some 5,000 paragraphs take three."""
_PICTURES_SHARE = 3.0
"""By the clock, pictures of text may take so many times the seconds, of the four times that a worker has."""

Told = Callable[[str, str], None]
"""Called with the name of a file, and why it or a part of it is not read, as soon as that is known."""


def load_documents(
    path: str | os.PathLike[str], *, progress: bool = False, max_bytes: int = MAX_BYTES, told: Told | None = None
) -> list[Document]:
    r"""All documents of a file or of a folder and those below it, by the names of the files; see `iter_documents`.

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
    """The documents of a file or folder, one file read at a time.

    Each has a stable `id` (its path below the root, or the row's own id; with `:page-n` or `:row-n` for a part of a file)
    and `source` (the path), `title` and, where they apply, `page`, `sheet`, `chapter` or `row` in its metadata; rows of
    tables have `entities`, and infoboxes `triples`, which an evidence graph links by. In a folder, hidden files are passed
    over; those that are not accepted, cannot be read or are links that lead outside are named to `told` at once, or else
    in the log as warnings, with a count at the end. A single file that cannot be read is a DocumentError, as is more text
    than `max_bytes` bytes. What parsers of PDF, HTML and the like read is read by a worker process, which is ended where a
    file takes out of all proportion long or much memory: 3 s (packages such as .docx 30 s) and 30 s for each megabyte, 400
    MB. With `progress` there is a bar on standard error.
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
    r"""The documents of one file, and why it or parts of it are not read; what `readable_suffixes` lists can be read here.

    Args:
        path: The file.
        name: Of the file for its ids and `source`, where it lies under another one; its suffix says of what kind it is.
        max_bytes: The most text.
        workers: Processes that several calls share; a worker of its own when None.

    Returns:
        The documents, and the reasons: of a file that cannot be read no document and one reason, which begins with no name.

    Example:
        >>> import tempfile, pathlib
        >>> upload = pathlib.Path(tempfile.mkdtemp(), "3f2a")
        >>> _ = upload.write_text('{"text": "One."}\n{"body": "Two."}')
        >>> read_file(upload, name="rows.jsonl")
        ([], ['line 2 has no text: rows are {"id", "title", "text"} or plain strings'])
    """
    place, reasons = Path(path), list[str]()
    called, seen = name or place.name, Counter[str]()
    with nullcontext(workers) if workers is not None else Workers() as used:
        try:
            pieces, size = _read(place, suffix_of(Path(called)), None, max_bytes, used)
        except DocumentError as error:
            return [], [str(error)]
    if size > max_bytes:
        return [], [f"holds more than {max_bytes / 1e6:g} MB of text: split it"]
    reasons += [piece.skipped for piece in pieces if piece.skipped]
    return [document_of(piece, called, seen) for piece in pieces if piece.text], reasons


class Skipped:
    """Names what is not read as soon as that is known: to a function, or else in the log, which gets a count at the end."""

    def __init__(self, told: Told | None = None) -> None:
        self.first, self._count, self._others, self._told = "", 0, 0, told

    def __call__(self, name: str, reason: str) -> None:
        """A file is not read."""
        self._count += 1
        self.first = self.first or f"{name} {reason}"
        self.part(name, reason)

    def part(self, name: str, reason: str) -> None:
        """A part of a file is not read."""
        if self._told is not None:
            self._told(name, reason)
        else:
            logger.warning("skipped: %s %s", name, reason)

    def other(self, name: str, reason: str) -> None:
        """A file of a kind that is not read: the first are named."""
        self._count, self._others = self._count + 1, self._others + 1
        if self._others <= _OTHERS_NAMED:
            self.part(name, reason)

    def end(self, read: int) -> None:
        """Count what was skipped, of files of which so many were of kinds that are read."""
        if self._told is None and self._count:
            more = f", {self._others - _OTHERS_NAMED} of them not named" if self._others > _OTHERS_NAMED else ""
            logger.warning("skipped: %d of %d files%s", self._count, read + self._others, more)


class DocumentFiles:
    """The files of a path: which there are, and the pieces of text of each, read by a worker process.

    Args:
        path: A file or a folder.
        max_bytes: The most text of all files together.

    Attributes:
        single: Whether the path is a file.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> None:
        self._root, self._max_bytes = Path(path).expanduser(), max_bytes
        self.single = True
        with suppress(OSError, ValueError):  # a name that is too long, or none
            self.single = not self._root.is_dir()
        self._folder = self._root.parent if self.single else self._root
        self._used: dict[str, int] = {}
        self._workers = Workers()

    def __enter__(self) -> DocumentFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def names(self, skipped: Skipped | None = None) -> dict[str, Path]:
        """The files that are to be read, by their names below the folder; DocumentError where there is none.

        Files of other kinds are named to `skipped`.
        """
        skipped = skipped or Skipped(lambda _name, _reason: None)
        return {file.relative_to(self._folder).as_posix(): file for file in _files(self._root, skipped)}

    def pieces(self, name: str, told: Told) -> list[Piece]:
        """The texts of a file that are not blank; DocumentError where it cannot be read, or all hold too much text."""
        file = self._folder / name
        self._used.pop(name, 0)
        left = self._max_bytes - sum(self._used.values())
        inside = None if self.single else self._folder
        pieces, used = _read(file, suffix_of(file), inside, left, self._workers)
        if used > left:
            raise TooMuchTextError(
                f"{self._root} holds more than {self._max_bytes / 1e6:g} MB of text (the limit was reached at {name}): "
                "give fewer documents, or raise the limit (--max-mb on the command line, max_bytes in Python)"
            )
        self._used[name] = used
        for piece in pieces:
            if piece.skipped:
                told(name, piece.skipped)
        return [piece for piece in pieces if piece.text]

    def forget(self) -> None:
        """Read all files anew: what was read before no longer counts."""
        self._used.clear()


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
            # Of pictures there are often many, of which few hold text.
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
    """The texts of a file as JSON data, and how many bytes of the limit they used: what a worker does."""
    with Path(path).open("rb") as stream:
        pieces, used = _parsed(stream, suffix, limit, seconds)
    return [asdict(piece) for piece in pieces], used


def read_bytes(data: bytes, suffix: str, limit: int) -> tuple[list[dict[str, Any]], int]:
    """As `read_pieces`, of the bytes of a file."""
    pieces, used = _parsed(io.BytesIO(data), suffix, limit, _SECONDS)
    return [asdict(piece) for piece in pieces], used


def _parsed(stream: BinaryIO, suffix: str, limit: int, seconds: float) -> tuple[list[Piece], int]:
    if suffix in TEXTS:
        return _text(stream, suffix, limit)
    found: Iterable[Piece]
    if suffix == ".pdf":
        found = read_pdf(stream, limit, pictures=ocr.PageReader(seconds * _PICTURES_SHARE).text if ocr.available() else None)
    elif suffix in PICTURES:
        found = ocr.read_image(stream, seconds * _PICTURES_SHARE)
    else:
        found = PACKAGES[suffix](stream, limit)
    pieces = list(found)
    return pieces, sum(len(piece.text) for piece in pieces)


def _text(stream: BinaryIO, suffix: str, limit: int) -> tuple[list[Piece], int]:
    with gzip.GzipFile(fileobj=stream) if suffix.endswith(".gz") else stream as plain:
        # Piece by piece: a read makes room for as much as it is asked for, and the limit may be beyond a worker's memory.
        parts: list[bytes] = []
        size = 0
        while size <= limit and (part := plain.read(min(_READ_AT_ONCE, limit + 1 - size))):
            parts.append(part)
            size += len(part)
    return ([] if size > limit else TEXTS[suffix](b"".join(parts))), size


def _read(file: Path, suffix: str, folder: Path | None, limit: int, workers: Workers) -> tuple[list[Piece], int]:
    """The texts of a file that are not blank, and what is said of parts without; and how many bytes of the limit they used."""
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
        if size > IN_WORKER.get(suffix, size):
            with file.open("rb"):
                # Here too, so that a file that cannot be opened is told from one that cannot be read.
                pass
            workers.call(load_parser, suffix, seconds=_IMPORT_SECONDS)
            found, used = workers.call(read_pieces, str(file.absolute()), suffix, limit, seconds, seconds=seconds)
            pieces = [Piece(**piece) for piece in found]
        else:
            with file.open("rb") as stream:
                pieces, used = _parsed(stream, suffix, limit, seconds)
    except LimitError as error:
        raise DocumentError(f"{error}: split it, or export its text") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DocumentError("is a broken gzip file: make it again") from error
    except OSError as error:
        raise DocumentError(f"cannot be opened ({_reason(error)})") from error
    except RecursionError as error:
        raise DocumentError("is nested too deeply to be read") from error
    pieces = [piece for piece in pieces if piece.text.strip() or piece.skipped]
    if not pieces and used <= limit:
        raise DocumentError("holds no text")
    return pieces, used


def document_of(piece: Piece, name: str, seen: Counter[str]) -> Document:
    """The document of a piece of a file; `seen` counts the ids that pieces before it got."""
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
    """The id of a piece of a file: its own one, or made of the file's name and its key, with a number where it is taken."""
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
    """The text as every store takes it, with plain line ends."""
    return clean(text).replace("\r\n", "\n").replace("\r", "\n")


def _reason(error: Exception) -> str:
    named = error.strerror if isinstance(error, OSError) else None
    return named or " ".join(str(error).split())[:120] or type(error).__name__
