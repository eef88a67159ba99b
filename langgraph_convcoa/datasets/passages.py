"""Passages of files, streamed: only the passages that are kept need memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from langchain_core.documents import Document

from langgraph_convcoa.datasets.formats.conversations import page_of
from langgraph_convcoa.datasets.queries import passage
from langgraph_convcoa.datasets.rows import Row, json_lines, table_rows
from langgraph_convcoa.errors import InputError

_ID_KEYS = ("id", "_id", "passage_id")
_TEXT_KEYS = ("text", "contents")
_QUESTIONS = re.compile(r"^queries\.jsonl|_(?:lastturn|questions|rewrite)\.jsonl$")
_FILES = (".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")


def stream_passages(path: str | Path) -> Iterator[Document]:
    r"""The passages of a file, or of all passage files in a folder and its subfolders, one after the other.

    A passage file is JSON Lines of {"id" or "_id", "title", "text" or "contents"}, or a TSV with those names in its first
    line. In a folder with a `corpus.jsonl` only that file is read. Questions are never read. Equal ids are not checked.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place} does not exist; name a passage file (.jsonl or .tsv) or a folder of them.")
    files = _collection(place) if place.is_dir() else [place]
    found = (_document(row) for file in files for row in _rows(file))
    first = next(found, None)
    if first is None:
        raise InputError(f"{place} has no passages: they are rows of .jsonl or .tsv files with an id and a text.")
    return chain([first], found)


def find_file(folder: Path, stem: str) -> Path | None:
    """The file of this name with the ending .jsonl or .jsonl.gz."""
    return next((folder / name for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz") if (folder / name).is_file()), None)


def passage_files(path: Path) -> list[Path]:
    """The files of a folder that can hold passages, sorted by name."""
    return sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(_FILES))


def collect_passages(
    files: Iterable[Path], carried: Iterable[Document] = (), wanted: Collection[str] = (), limit: int | None = None
) -> list[Document]:
    """The passages of files and those of question files (`carried`), each id once.

    With a limit, about that many passages are kept: the wanted ones (by id, or by page of QReCC) and the first others.
    """
    kept: dict[str, Document] = {}
    places: dict[str, str] = {}
    others = None if limit is None else max(0, limit - len(wanted))
    for document in carried:
        identity = str(document.id)
        if kept.setdefault(identity, document).page_content != document.page_content:
            raise InputError(f"The passage id {identity!r} stands for two texts; give each its own.")
    for row in (row for file in files for row in _rows(file)):
        identity = _identity(row)
        if identity in places:
            raise row.error(f"the corpus holds the id {identity!r} twice; the first is in {places[identity]}.")
        if others is not None and identity not in wanted and page_of(identity) not in wanted:
            if not others:
                continue
            others -= 1
        document = _document(row)
        if kept.setdefault(identity, document).page_content != document.page_content:
            raise row.error(f"the passage id {identity!r} stands for two texts; give each its own.")
        places[identity] = row.where
    return list(kept.values())


def load_distractors(specification: str) -> list[Document]:
    """The first N passages of a corpus file, given as `FILE:N`; all of them for `FILE`."""
    name, _, number = specification.rpartition(":")
    if name and (not number.isascii() or not number.isdigit() or int(number) < 1):
        raise InputError(f"Distractors are written FILE:N with N above 0, not {specification!r}.")
    rows = _rows(Path(name or specification))
    return [_document(row) for row in islice(rows, int(number) if name else None)]


def _collection(folder: Path) -> list[Path]:
    if own := find_file(folder, "corpus"):
        return [own]
    files = (file for file in folder.rglob("*") if file.is_file() and file.name.endswith(_FILES))
    return [file for file in sorted(files) if _has_passages(file)]


def _has_passages(file: Path) -> bool:
    row = Row({}, "") if _QUESTIONS.search(file.name) else next(_rows(file), Row({}, ""))
    return any(key in row for key in _ID_KEYS) and any(key in row for key in _TEXT_KEYS)


def _rows(path: Path) -> Iterator[Row]:
    rows = table_rows(path) if ".tsv" in path.suffixes else json_lines(path)
    # Each file of FEVER's Wikipedia begins with a row without id and text.
    return (row for row in rows if row.get("id") != "" or row.get("text"))


def _identity(row: Row) -> str:
    return row.text(next((key for key in _ID_KEYS if key in row), "id"))


def _document(row: Row) -> Document:
    text = next((row[key] for key in _TEXT_KEYS if key in row), None)
    if not isinstance(text, str):
        raise row.error("`text` must be a string.")
    return passage(_identity(row), text, row.optional("title"))
