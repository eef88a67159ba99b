"""Documents from a file or folder of plain text, Markdown, HTML, PDF, CSV and JSON."""

from __future__ import annotations

import gzip
import io
import logging
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from langchain_core.documents import Document

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.formats import Piece, read_csv, read_json, read_json_lines, read_pdf, read_plain
from langgraph_convcoa.retrieval.documents.markup import read_html, read_markdown
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers
from langgraph_convcoa.retrieval.progress import track
from langgraph_convcoa.text.clean import clean

logger = logging.getLogger(__name__)

MAX_BYTES = 50_000_000
"""The default limit of the text of a run, in bytes."""

ACCEPTED = ".txt .md .html .pdf .csv .json .jsonl (.json.gz and .jsonl.gz too)"

_READERS: dict[str, Callable[[bytes], list[Piece]]] = {
    ".txt": read_plain, ".text": read_plain,
    ".md": read_markdown, ".markdown": read_markdown,
    ".html": read_html, ".htm": read_html,
    ".csv": read_csv, ".tsv": read_csv,
    ".json": read_json, ".json.gz": read_json,
    ".jsonl": read_json_lines, ".jsonl.gz": read_json_lines,
}  # fmt: skip
_REASONS_SHOWN = 10
_IN_WORKER = {
    ".pdf": 0, ".json.gz": 10_000,
    **dict.fromkeys((".html", ".htm", ".md", ".markdown"), 4_000),
    **dict.fromkeys((".json", ".csv", ".tsv"), 1_000_000),
}  # fmt: skip
"""Formats whose parsers can take time and memory out of all proportion to a file, and the bytes from which on they can."""
_READ_AT_ONCE = 8_000_000
_IMPORT_SECONDS = 60.0
_SECONDS, _SECONDS_PER_MB = 3.0, 30.0
"""A worker's time for a file: three seconds, and so many more for each megabyte of it."""


def load_documents(path: str | os.PathLike[str], *, progress: bool = False, max_bytes: int = MAX_BYTES) -> list[Document]:
    r"""All documents of a file or of a folder and those below it, by the names of the files; see `iter_documents`.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.md").write_text("# Energy\n\nAn energy falls.")
        >>> [(d.id, d.metadata["source"], d.metadata["title"]) for d in load_documents(folder)]
        [('a.md', 'a.md', 'Energy')]
    """
    return list(iter_documents(path, progress=progress, max_bytes=max_bytes))


def iter_documents(path: str | os.PathLike[str], *, progress: bool = False, max_bytes: int = MAX_BYTES) -> Iterator[Document]:
    """The documents of a file or folder, one file read at a time.

    Each has a stable `id` (its path below the root, or the row's own id; with `:page-n` or `:row-n` for a part of a file) and
    `source` (the path), `title` and, where they apply, `page` or `row` in its metadata. In a folder, hidden files and files
    that are not accepted, cannot be read or are links that lead outside are passed over, with a warning in the log; a single
    file that cannot be read is a DocumentError, as is more text than `max_bytes` bytes. What parsers of PDF, HTML and the like
    read is read by a worker process, which is ended where a file takes out of all proportion long or much memory: 3 s and 30 s
    for each megabyte, 400 MB. With `progress` there is a bar on standard error.
    """
    root = Path(path).expanduser()
    files = _files(root)
    single = not root.is_dir()
    folder = root.parent if single else root
    skipped: list[str] = []
    seen: Counter[str] = Counter()
    left = max_bytes
    with (
        Workers() as workers,
        track(progress and sys.stderr.isatty() and len(files) > 1, len(files), "Reading") as advance,
    ):
        for file in files:
            name = file.relative_to(folder).as_posix()
            advance(1)
            try:
                pieces, used = _read(file, None if single else folder, left, workers)
            except DocumentError as error:
                if single:
                    raise DocumentError(f"{path} {error}") from error
                skipped.append(f"{name} {error}")
                continue
            if used > left:
                raise DocumentError(
                    f"{path} holds more than {max_bytes / 1e6:g} MB of text (the limit was reached at {name}): "
                    "give fewer documents, or raise the limit (--max-mb on the command line, max_bytes in Python)"
                )
            left -= used
            for piece in pieces:
                yield _document(piece, name, seen)
    for reason in skipped[:_REASONS_SHOWN]:
        logger.warning("skipped: %s", reason)
    if len(skipped) > _REASONS_SHOWN:
        logger.warning("skipped: %d more files that could not be read", len(skipped) - _REASONS_SHOWN)
    if not seen:
        reason = f" (first reason: {skipped[0]})" if skipped else ""
        raise DocumentError(f"no text could be read from {path}{reason}: accepted are {ACCEPTED}")


def _files(root: Path) -> list[Path]:
    shown = str(root).replace("\x00", "?")[:200]
    try:
        if root.is_dir():
            return _walk(root)
        if root.is_file() and _suffix(root) is not None:
            return [root]
        reason = "is not of a kind that can be read" if root.is_file() else "is neither a file nor a folder"
        reason = reason if root.exists() else "does not exist"
    except (OSError, ValueError) as error:
        raise DocumentError(f"{shown} cannot be opened ({_reason(error)}): give another path") from error
    raise DocumentError(f"{shown} {reason}: accepted are {ACCEPTED}")


def _walk(root: Path) -> list[Path]:
    found, other = [], Counter[str]()

    def unreadable(error: OSError) -> None:
        logger.warning("skipped: folder %s cannot be opened (%s)", error.filename, _reason(error))

    for folder, subfolders, names in os.walk(root, onerror=unreadable):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if name.startswith("."):
                other["hidden"] += 1
            elif _suffix(file) is None:
                other[file.suffix or "no suffix"] += 1
            else:
                found.append(file)
    if other:
        kinds = ", ".join(kind for kind, _ in other.most_common(5))
        level = logging.INFO if found else logging.WARNING
        logger.log(level, "skipped: %d files of other kinds (%s)", other.total(), kinds)
    if not found:
        held = f"holds no file that can be read ({other.total()} of other kinds)" if other else "is an empty folder"
        raise DocumentError(f"{root} {held}: accepted are {ACCEPTED}")
    return found


def _suffix(file: Path) -> str | None:
    name = file.name.lower()
    match = re.search(r"\.[a-z]+(\.gz)?$", name)
    suffix = match.group() if match else ""
    return suffix if suffix in _READERS or suffix == ".pdf" else None


def load_parser(suffix: str) -> None:
    """Import what reads this kind of file, which is no file's own time."""
    if suffix == ".pdf":
        import pypdf  # noqa: F401
    elif suffix in (".html", ".htm", ".md", ".markdown"):
        import bs4  # noqa: F401
        import markdown_it  # noqa: F401


def read_pieces(path: str, suffix: str, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The texts of a file as JSON data, and how many bytes of the limit they used: what a worker does."""
    with Path(path).open("rb") as stream:
        pieces, used = _parsed(stream, suffix, limit)
    return [asdict(piece) for piece in pieces], used


def read_bytes(data: bytes, suffix: str, limit: int) -> tuple[list[dict[str, Any]], int]:
    """As `read_pieces`, of the bytes of a file."""
    pieces, used = _parsed(io.BytesIO(data), suffix, limit)
    return [asdict(piece) for piece in pieces], used


def _parsed(stream: BinaryIO, suffix: str, limit: int) -> tuple[list[Piece], int]:
    if suffix == ".pdf":
        pieces = list(read_pdf(stream, limit))
        return pieces, sum(len(piece.text) for piece in pieces)
    with gzip.GzipFile(fileobj=stream) if suffix.endswith(".gz") else stream as plain:
        # Piece by piece: a read makes room for as much as it is asked for, and the limit may be beyond a worker's memory.
        parts: list[bytes] = []
        size = 0
        while size <= limit and (part := plain.read(min(_READ_AT_ONCE, limit + 1 - size))):
            parts.append(part)
            size += len(part)
    return ([] if size > limit else _READERS[suffix](b"".join(parts))), size


def _read(file: Path, folder: Path | None, limit: int, workers: Workers) -> tuple[list[Piece], int]:
    """The texts of a file that are not blank, and how many bytes of the limit they used."""
    suffix = _suffix(file) or ""
    try:
        if not file.is_file():
            raise DocumentError("is not a regular file")
        if folder is not None and not file.resolve().is_relative_to(folder.resolve()):
            raise DocumentError("is a link to a file outside of the folder: copy the file, or give its own folder")
        size = file.stat().st_size
        if size > _IN_WORKER.get(suffix, size):
            with file.open("rb"):
                # Here too, so that a file that cannot be opened is told from one that cannot be read.
                pass
            seconds = _SECONDS + _SECONDS_PER_MB * size / 1e6
            workers.call(load_parser, suffix, seconds=_IMPORT_SECONDS)
            found, used = workers.call(read_pieces, str(file.absolute()), suffix, limit, seconds=seconds)
            pieces = [Piece(**piece) for piece in found]
        else:
            with file.open("rb") as stream:
                pieces, used = _parsed(stream, suffix, limit)
    except LimitError as error:
        raise DocumentError(f"{error}: split it, or export its text") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DocumentError("is a broken gzip file: make it again") from error
    except OSError as error:
        raise DocumentError(f"cannot be opened ({_reason(error)})") from error
    except RecursionError as error:
        raise DocumentError("is nested too deeply to be read") from error
    pieces = [piece for piece in pieces if piece.text.strip()]
    if not pieces and used <= limit:
        raise DocumentError("holds no text")
    return pieces, used


def _document(piece: Piece, name: str, seen: Counter[str]) -> Document:
    identity = piece.key if piece.own_id else f"{name}:{piece.key}" if piece.key else name
    if identity in seen and piece.own_id:
        identity = f"{name}:{piece.key}"
    repeated = seen[identity]
    seen[identity] += 1
    if repeated:
        identity = f"{identity}:{repeated + 1}"
        seen[identity] += 1
    is_row = bool(piece.key) and not piece.metadata
    named = re.sub(r"[-_\s]+", " ", name.rsplit("/", 1)[-1].split(".", 1)[0]).strip()
    title = piece.title or ("" if is_row else named)
    return Document(
        page_content=_storable(piece.text),
        id=_storable(identity),
        metadata={"source": _storable(name), "title": _storable(title), **piece.metadata},
    )


def _storable(text: str) -> str:
    """The text as every store takes it, with plain line ends."""
    return clean(text).replace("\r\n", "\n").replace("\r", "\n")


def _reason(error: Exception) -> str:
    named = error.strerror if isinstance(error, OSError) else None
    return named or " ".join(str(error).split())[:120] or type(error).__name__
