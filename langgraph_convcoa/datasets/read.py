"""Readers of data sets: own folders, BEIR folders and published files. Passages alone can be streamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from langchain_core.documents import Document

from langgraph_convcoa.datasets.formats import conversations, questions
from langgraph_convcoa.datasets.formats.conversations import is_beir, page_of, query_files, read_beir, resolve_pages
from langgraph_convcoa.datasets.queries import Dataset, Entries, Query, passage, split_of, split_part, splits_of
from langgraph_convcoa.datasets.rows import Row, json_document, json_lines, table_rows
from langgraph_convcoa.errors import InputError

Needed = Literal["required", "optional"]
KNOWN = (
    "a folder of queries.jsonl and corpus.jsonl (gzipped or not), or files of QReCC, TopiOCQA, QuAC, CoQA, MTRAG, "
    "HotpotQA, 2WikiMultiHopQA or MuSiQue; write other questions as queries.jsonl"
)
_FIELDS = ("id", "question", "history", "gold", "rewrite", "answer", "answers", "split", "conversation_id")
_TURN = {"Conversation_no", "Turn_no", "Question"}
_FORMATS: tuple[tuple[Callable[[Row], bool] | set[str], Callable[[Row], Entries]], ...] = (
    *((_TURN | {key}, conversations.read_topiocqa) for key in ("Gold_passage", "Topic")),
    ({"conv_id", "turn_id", "question", "positive_ctxs"}, conversations.read_topiocqa),
    *((_TURN | {key}, conversations.read_qrecc) for key in ("Rewrite", "Truth_rewrite", "Answer_URL", "Truth_passages")),
    (conversations.is_quac, conversations.read_quac),
    ({"story", "questions", "answers"}, conversations.read_coqa),
    ({"task_id", "input", "contexts"}, conversations.read_mtrag_task),
    ({"question", "context", "supporting_facts"}, questions.read_hotpotqa),
    ({"id", "question", "paragraphs"}, questions.read_musique),
)  # For each format: the check of a file's first row (keys that it must have, or a function), and the reader of its rows.
_ID_KEYS = ("id", "_id", "passage_id")
_TEXT_KEYS = ("text", "contents")
_QUESTIONS = re.compile(r"^queries\.jsonl|_(?:lastturn|questions|rewrite)\.jsonl$")
_FILES = (".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")


def load_dataset(
    path: str | Path, *, split: str | None = None, max_passages: int | None = None, passages: Needed = "required"
) -> Dataset:
    """Read a data set: a folder of `queries.jsonl[.gz]` and `corpus.jsonl[.gz]`, or a published data set.

    A query is `{"id", "question", "history": [[question, answer], ...], "gold": [passage ids], ...}`, a passage
    `{"id", "title", "text"}`; only `id`, `question` and `text` are required. `answers` holds several right answers.

    Published formats are recognised by their content (see `formats`). The name of a file gives its split (train, dev or val,
    test). The passages come from the question files and from passage files (.jsonl, .tsv, gzipped or not) in the folder.

    Args:
        path: A folder, or a file in a published format.
        split: Only queries of this split; all when None.
        max_passages: Keep about this many passages in memory: the gold passages and the first others.
        passages: "optional" also reads questions without passages; the corpus is empty then.

    Raises InputError if the format is not known, a file cannot be read, a row is wrong or its id occurs twice (the message has
    the file and line), no query is in the split, or required passages are missing.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place} does not exist; name {KNOWN}.")
    rows, carried, files = _read(place, required=passages == "required")
    chosen = [query for query in rows if split is None or query.split == split]
    if not chosen:
        which = f" of the split {split!r}; its splits: {splits_of(rows)}." if split else "."
        raise InputError(f"{place} has no queries{which}")
    gold = {identity for query in chosen for identity in query.gold}
    corpus = tuple(collect_passages(files, carried, gold, max_passages))
    if not corpus and passages == "required":
        raise InputError(f"{place} has no passages; put a passage file (.jsonl or .tsv) into one folder with the questions.")
    name = place.resolve().name if place.is_dir() else place.name.partition(".")[0]
    return Dataset(name, tuple(resolve_pages(chosen, corpus)), corpus)


def load_part(
    path: str | Path, split: str | None = None, *, max_passages: int | None = None, passages: Needed = "required"
) -> tuple[Dataset, str]:
    """Read the queries of one split with the whole corpus. Returns the data set and the name of the part.

    If `split` is None, all queries are read. If the data has no split "dev", "dev" is the part that training leaves out
    (`split_part`). The other arguments are as for `load_dataset`.
    """
    dataset = load_dataset(path, max_passages=max_passages, passages=passages)
    if split is None:
        return dataset, ""
    queries = tuple(query for query in dataset.queries if query.split == split)
    if queries:
        return replace(dataset, queries=queries), split
    if split == "dev":
        dev = split_part(dataset, "dev")
        return dev.dataset, f"dev: {dev.name}"
    raise InputError(f"{path} has no queries of the split {split!r}; its splits: {splits_of(dataset.queries)}.")


def _read(place: Path, *, required: bool) -> tuple[list[Query], list[Document], list[Path]]:
    """The queries of a data set, the passages that its question files carry, and its passage files."""
    inside = sorted(place.iterdir()) if place.is_dir() else []
    files = [file for file in inside if file.is_file() and file.name.endswith(_FILES)]
    if place.is_dir() and is_beir(place):
        asked = {*query_files(place).values(), place / "qrels.tsv"}
        return _unique(read_beir(place)), [], [file for file in files if file not in asked]
    if place.is_dir() and (own := find_file(place, "queries")) is not None:
        corpus = find_file(place, "corpus")
        if corpus is None and required:
            raise InputError(f"{place} has no corpus.jsonl or corpus.jsonl.gz.")
        return _unique(_read_queries(own)), [], [corpus] if corpus else []
    published = {file: [*entries] for file in inside or [place] if (entries := _read_published(file)) is not None}
    found = [entry for entries in published.values() for entry in entries]
    if not found:
        raise InputError(f"{place} is in no known format; name {KNOWN}.")
    carried = [entry for entry in found if isinstance(entry, Document)]
    files = [file for file in files if file not in published]
    return _unique(entry for entry in found if isinstance(entry, Query)), carried, files


def _read_queries(path: Path) -> Iterator[Query]:
    for row in json_lines(path):
        history = row.get("history") or []
        turns = [turn if isinstance(turn, list) else [] for turn in history] if isinstance(history, list) else [[]]
        if not all(len(turn) == 2 and isinstance(turn[0], str) and isinstance(turn[1], str | None) for turn in turns):
            raise row.error("`history` must be a list of [question, answer].")
        answers, answer = row.answers("answers"), row.optional("answer")
        yield Query(
            id=row.text("id"),
            question=row.text("question"),
            history=tuple((question, said or "") for question, said in history),
            gold=tuple(dict.fromkeys(row.strings("gold"))),
            rewrite=row.optional("rewrite"),
            answer=answer,
            references=tuple(dict.fromkeys([answer] * bool(answer.strip()) + [*answers])),
            split=row.optional("split"),
            conversation=row.optional("conversation_id"),
            extra={key: value for key, value in row.items() if key not in _FIELDS},
            where=row.where,
        )


def _unique(queries: Iterable[Query]) -> list[Query]:
    """The queries as a list. If an id occurs twice, the InputError names both places."""
    seen: dict[str, Query] = {}
    for query in queries:
        if query.id in seen:
            raise InputError(f"{query.where}: the id {query.id!r} is there already, in {seen[query.id].where}.")
        seen[query.id] = query
    return list(seen.values())


def _read_published(path: Path) -> Entries | None:
    """The questions and passages of a file in a published format; None for other files."""
    name = path.name.removesuffix(".gz")
    if not path.is_file():
        return None
    first: Any = None
    rows: Iterator[Row] = iter(())
    if name.endswith(".json"):
        places = list(_places(path, json_document(path)))
        first, rows = places[0][0] if places else None, (Row(value, where) for value, where in places)
    elif name.endswith(".jsonl"):
        first, rows = next(json_lines(path), None), json_lines(path)
    if not isinstance(first, dict):
        return None
    head = Row(first, str(path))
    found = (read for mark, read in _FORMATS if (mark <= head.keys() if isinstance(mark, set) else mark(head)))
    return next((_entries(path, rows, read) for read in found), None)


def _entries(path: Path, rows: Iterable[Row], read: Callable[[Row], Entries]) -> Entries:
    """The questions and passages in the rows of a file. Questions get the split of the file and the place of their row."""
    split = split_of(path)
    for row in rows:
        row.split = split
        for entry in read(row):
            yield replace(entry, split=entry.split or split, where=row.where) if isinstance(entry, Query) else entry


def _places(path: Path, value: Any) -> Iterator[tuple[Any, str]]:
    """The entries of a JSON file with their places. The file is a list, or holds one as `data`."""
    entries = value.get("data") if isinstance(value, dict) else value
    for number, entry in enumerate(entries if isinstance(entries, list) else (), 1):
        yield entry, f"{path}, item {number}"


def stream_passages(path: str | Path) -> Iterator[Document]:
    r"""The passages of a file, or of all passage files in a folder and its subfolders, one after the other.

    A passage file is JSON Lines of {"id" or "_id", "title", "text" or "contents"}, or a TSV with those names in its first
    line. In a folder with a `corpus.jsonl`, only that file is read. Questions are never read. Equal ids are not checked.
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


def collect_passages(
    files: Iterable[Path], carried: Iterable[Document], wanted: Collection[str], limit: int | None
) -> list[Document]:
    """The passages of passage files (`files`) and of question files (`carried`), each id once.

    With a limit, about that many passages are kept: those wanted (by id, or by page of QReCC) and the first others.
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
    return [_document(row) for row in islice(_rows(Path(name or specification)), int(number) if name else None)]


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
