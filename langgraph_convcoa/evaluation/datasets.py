"""Conversational retrieval data: a folder with `queries.jsonl` and `corpus.jsonl`, either of them gzipped or not."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError

_QUERY_FIELDS = ("id", "question", "history", "gold", "rewrite", "answer", "split")


@dataclass(frozen=True)
class Query:
    """A question of a conversation and the passages that answer it.

    Attributes:
        id: The row's id.
        question: As it was put.
        history: Earlier pairs of question and answer, oldest first.
        gold: Ids of the passages that answer it.
        rewrite: A form of the question that stands alone, empty where none is known.
        answer: The reference answer, empty where none is known.
        split: "train", "dev", ...
        extra: The row's other fields.
    """

    id: str
    question: str
    history: tuple[tuple[str, str], ...] = ()
    gold: tuple[str, ...] = ()
    rewrite: str = ""
    answer: str = ""
    split: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dataset:
    """Queries and the passages that are searched; `name` is the folder's."""

    name: str
    queries: tuple[Query, ...]
    corpus: tuple[Document, ...]


def load_dataset(path: str | Path, *, split: str | None = None) -> Dataset:
    """Read a folder of `queries.jsonl[.gz]` and `corpus.jsonl[.gz]`.

    A query is `{"id", "question", "history": [[question, answer], ...], "gold": [passage ids], ...}`, a passage
    `{"id", "title", "text"}`; only `id`, `question` and `text` must be there.

    Args:
        path: The folder.
        split: Only queries of this split; all when None.

    Raises:
        InputError: A file is missing or cannot be read, a row is not as above (its file and line are named), or no query is of
            the split.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name one with queries.jsonl[.gz] and corpus.jsonl[.gz].")
    corpus = tuple(_unique(_read_corpus(_find(folder, "corpus"))))
    rows = tuple(_read_queries(_find(folder, "queries")))
    queries = tuple(query for query in rows if split is None or query.split == split)
    if not queries:
        known = ", ".join(sorted({query.split for query in rows if query.split})) or "none"
        raise InputError(f"{folder} has no queries" + (f" of the split {split!r}; its splits: {known}." if split else "."))
    return Dataset(folder.resolve().name, queries, corpus)


def load_distractors(specification: str) -> list[Document]:
    """The first N passages of a corpus file, written `FILE:N`; all of them for a bare `FILE`.

    Raises:
        InputError: The file cannot be read, a row is bad, or N is no number above 0.
    """
    name, _, number = specification.rpartition(":")
    if not name:
        return list(_read_corpus(Path(specification)))
    if not number.isascii() or not number.isdigit() or int(number) < 1:
        raise InputError(f"Distractors are written FILE:N with N above 0, not {specification!r}.")
    return list(islice(_read_corpus(Path(name)), int(number)))


def _find(folder: Path, stem: str) -> Path:
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder} has no {stem}.jsonl or {stem}.jsonl.gz.")


def _read_queries(path: Path) -> Iterator[Query]:
    for where, row in _rows(path):
        history = row.get("history") or []
        if not isinstance(history, list) or not all(_is_turn(turn) for turn in history):
            raise InputError(f"{where}: `history` must be a list of [question, answer].")
        gold = row.get("gold") or []
        if not isinstance(gold, list) or not all(isinstance(identity, str) for identity in gold):
            raise InputError(f"{where}: `gold` must be a list of passage ids.")
        yield Query(
            id=_text(row, "id", where),
            question=_text(row, "question", where),
            history=tuple((question, answer or "") for question, answer in history),
            gold=tuple(dict.fromkeys(gold)),
            rewrite=_optional(row, "rewrite", where),
            answer=_optional(row, "answer", where),
            split=_optional(row, "split", where),
            extra={key: value for key, value in row.items() if key not in _QUERY_FIELDS},
        )


def _read_corpus(path: Path) -> Iterator[Document]:
    for where, row in _rows(path):
        title = _optional(row, "title", where)
        text = row.get("text")
        if not isinstance(text, str):
            raise InputError(f"{where}: `text` must be a string.")
        yield Document(id=_text(row, "id", where), page_content=text, metadata={"title": title} if title else {})


def _unique(documents: Iterator[Document]) -> Iterator[Document]:
    seen: set[str | None] = set()
    for document in documents:
        if document.id in seen:
            raise InputError(f"The corpus holds the id {document.id!r} twice.")
        seen.add(document.id)
        yield document


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The JSON objects of a file, each with its place for messages."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                where = f"{path}, line {number}"
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise InputError(f"{where}: not JSON ({error}).") from None
                if not isinstance(row, dict):
                    raise InputError(f"{where}: must be a JSON object.")
                yield where, row
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error


def _is_turn(turn: object) -> bool:
    return isinstance(turn, list) and len(turn) == 2 and isinstance(turn[0], str) and isinstance(turn[1], str | None)


def _text(row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: `{key}` must be a string that is not empty.")
    return value


def _optional(row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{where}: `{key}` must be a string or null.")
    return value
