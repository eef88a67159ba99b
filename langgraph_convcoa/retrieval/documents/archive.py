"""Documents that are zip packages (Word, PowerPoint, Excel, EPUB); harmful ones are refused before they are read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from langgraph_convcoa.errors import DocumentError

_MOST_PARTS = 10_000
_MOST_BYTES = 300_000_000
_UNSUSPECTED, _MOST_RATIO = 20_000_000, 200
"""A package that unpacks to more than 20 MB and to more than 200 times its size is refused."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of Office files from before 2007, and of encrypted Office documents."""
_XML = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm", ".vml")
_ENTITIES = (b"<!ENTITY", "<!ENTITY".encode("utf-16-le")[:-1])
_READ_AT_ONCE = 1_000_000


@contextmanager
def package(stream: BinaryIO, kind: str) -> Iterator[ZipFile]:
    """Open a package for a block. Raises DocumentError if it is not of that kind, or if a parser fails in the block.

    Refuses packages with a password, XML entities or over 10,000 parts, or that unpack to over 300 MB or 200 times their size.
    """
    try:
        head = stream.read(len(_OLE))
        size = stream.seek(0, 2)
        stream.seek(0)
        if head == _OLE:
            raise DocumentError(f"is encrypted with a password, or of an older kind: save it as {kind} without a password")
        with ZipFile(stream) as archive:
            _check(archive, size)
            yield archive
    except (DocumentError, MemoryError):
        raise
    except (BadZipFile, zlib.error, EOFError) as error:
        raise DocumentError(f"is no readable {kind} file (cut short, or of another kind): save it again") from error
    except Exception as error:  # a broken part can make a parser raise almost anything
        # Only the error's type is named: its message may contain any text of the file.
        raise DocumentError(f"is no readable {kind} file ({type(error).__name__}): open it and save it again") from error


def _check(archive: ZipFile, size: int) -> None:
    parts = archive.infolist()
    # No part is read beyond the size that it declares.
    total = sum(part.file_size for part in parts)
    if len(parts) > _MOST_PARTS:
        raise DocumentError(f"is a package of {len(parts)} parts, over {_MOST_PARTS}: split it")
    if total > _MOST_BYTES or (total > _UNSUSPECTED and total > _MOST_RATIO * size):
        raise DocumentError(f"unpacks to {total / 1e6:.0f} MB, {total / max(size, 1):.0f} times its size: it is not opened")
    if any(part.flag_bits & 1 for part in parts):
        raise DocumentError("is encrypted with a password: save a copy without it")
    if any(part.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for part in parts):
        raise DocumentError("is packed in a way that no document is: save it again")
    for part in parts:
        if part.filename.lower().endswith(_XML):
            _check_entities(archive, part.filename)


def _check_entities(archive: ZipFile, name: str) -> None:
    """Refuse XML entities, which can grow without end or include a file; documents need no entities."""
    with archive.open(name) as part:
        before = b""
        while data := part.read(_READ_AT_ONCE):
            if any(mark in before + data for mark in _ENTITIES):
                raise DocumentError("declares XML entities, which no document needs: it is not opened")
            before = data[-len(_ENTITIES[1]) :]
