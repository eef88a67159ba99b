"""The kinds of files that can be read, their readers, and the packages that a kind needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from typing import BinaryIO

from langgraph_convcoa.retrieval.documents import formats
from langgraph_convcoa.retrieval.documents.formats import Piece, read_csv, read_json, read_json_lines, read_plain
from langgraph_convcoa.retrieval.documents.markup import read_html, read_markdown
from langgraph_convcoa.retrieval.documents.office import read_docx, read_epub, read_pptx, read_xlsx

TEXTS: dict[str, Callable[[bytes], list[Piece]]] = {
    ".txt": read_plain, ".text": read_plain,
    ".md": read_markdown, ".markdown": read_markdown,
    ".html": read_html, ".htm": read_html,
    ".csv": read_csv, ".tsv": partial(read_csv, delimiter="\t"),
    ".json": read_json, ".json.gz": read_json,
    ".jsonl": read_json_lines, ".jsonl.gz": read_json_lines,
}  # fmt: skip
"""Readers of text files."""
PACKAGES: dict[str, Callable[[BinaryIO, int], Iterable[Piece]]] = {
    ".docx": read_docx, ".pptx": read_pptx, ".xlsx": read_xlsx, ".epub": read_epub,
}  # fmt: skip
"""Readers of zip packages; each takes a file and a limit of characters."""
PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
IN_WORKER = {
    ".json.gz": 10_000,
    **dict.fromkeys((".pdf", *PACKAGES, *PICTURES), 0),
    **dict.fromkeys((".html", ".htm", ".md", ".markdown"), 4_000),
    **dict.fromkeys((".json", ".csv", ".tsv"), 1_000_000),
}
"""Formats whose parsers may need much time and memory. Files of more than this many bytes are parsed in a worker."""
_PARSERS = {
    ".pdf": ("pypdf",),
    ".docx": ("mammoth", "bs4"),
    ".pptx": ("pptx",),
    ".xlsx": ("openpyxl",),
    **dict.fromkeys((".epub", ".html", ".htm", ".md", ".markdown"), ("bs4", "markdown_it")),
}
_OLDER = {
    ".doc": ".docx", ".rtf": ".docx", ".odt": ".docx", ".ppt": ".pptx", ".odp": ".pptx", ".xls": ".xlsx", ".ods": ".xlsx",
}  # fmt: skip
_KINDS = (*TEXTS, ".pdf", *PACKAGES, *PICTURES)


def suffix_of(path: PurePath) -> str:
    """The suffix of a file, in lower case; empty for a kind that is never read."""
    match = re.search(r"\.[a-z]+(\.gz)?$", path.name.lower())
    suffix = match.group() if match else ""
    return suffix if suffix in _KINDS else ""


def missing(suffix: str) -> str:
    """The reason why this kind cannot be read here, with what to install; empty if nothing is missing."""
    if suffix in PICTURES and not formats.reads_pictures():
        return f"is a picture: {formats.OCR_ADVICE}"
    if suffix in PACKAGES and any(find_spec(name) is None for name in _PARSERS[suffix]):
        return 'needs the extra documents: pip install "langgraph-convcoa[documents]"'
    return ""


def reason_against(path: PurePath) -> str:
    """The reason why a file of this kind is never read."""
    newer = _OLDER.get(path.suffix.lower())
    return f"is of an older kind: save it as {newer}" if newer else "is not of a kind that can be read"


def readable_suffixes() -> tuple[str, ...]:
    """The suffixes of files that can be read with the installed packages."""
    return tuple(suffix for suffix in _KINDS if not missing(suffix))


def load_parser(suffix: str) -> None:
    """Import the parser of this kind of file."""
    for name in _PARSERS.get(suffix, ()):
        import_module(name)
