"""Reading a data set of any known format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from langchain_core.documents import Document

from langgraph_convcoa.datasets.folder import read_queries
from langgraph_convcoa.datasets.formats.mtrag import is_beir, query_files, read_beir
from langgraph_convcoa.datasets.formats.published import Record
from langgraph_convcoa.datasets.formats.qrecc import resolve_pages
from langgraph_convcoa.datasets.passages import collect_passages, passage_files
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.datasets.recognise import PUBLISHED, read_published
from langgraph_convcoa.errors import InputError

KNOWN = f"a folder of queries.jsonl and corpus.jsonl (gzipped or not), or files of {PUBLISHED}"


def load_dataset(
    path: str | Path,
    *,
    split: str | None = None,
    max_passages: int | None = None,
    passages: Literal["required", "optional"] = "required",
) -> Dataset:
    """Read a data set: a folder of `queries.jsonl[.gz]` and `corpus.jsonl[.gz]`, or one in a published format.

    A query is `{"id", "question", "history": [[question, answer], ...], "gold": [passage ids], ...}`, a passage
    `{"id", "title", "text"}`; only `id`, `question` and `text` must be there.

    Published formats are recognised by their content: QReCC, TopiOCQA, QuAC, CoQA, MTRAG's generation tasks, folders in BEIR's
    form (MTRAG's retrieval), and those of Pan et al. 2024a: WebQuestions, BIG-bench's JSON tasks, Social IQa, TruthfulQA,
    StrategyQA, FEVER and ASQA. A file's split is what its name tells (train, dev or val, test). Passages are those that the
    files carry, and those of passage files (.jsonl, .tsv, gzipped or not) in the same folder.

    Args:
        path: The folder or, of a published format, a file.
        split: Only queries of this split; all when None.
        max_passages: About how many passages are kept: those that are gold, and the first others; all when None. Passage files
            are read as a stream, so that millions need no more memory than those that are kept.
        passages: "optional" takes questions without passages, for answers from memory or over other documents; the corpus is
            empty then.

    Raises:
        InputError: The format is not known, a file is missing or cannot be read, a row is not as it should be or has an id
            that was there (file and line are named), no query is of the split, or there are no passages and they are required.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place} does not exist; name {KNOWN}.")
    rows, carried, files = _read(place, required=passages == "required")
    chosen = [query for query in rows if split is None or query.split == split]
    if not chosen:
        known = ", ".join(sorted({query.split for query in rows if query.split})) or "none"
        raise InputError(f"{place} has no queries" + (f" of the split {split!r}; its splits: {known}." if split else "."))
    gold = {identity for query in chosen for identity in query.gold}
    corpus = tuple(collect_passages(files, carried, gold, max_passages))
    if not corpus and passages == "required":
        raise InputError(f"{place} has no passages; put a passage file (.jsonl or .tsv) into one folder with the questions.")
    name = place.resolve().name if place.is_dir() else place.name.partition(".")[0]
    return Dataset(name, tuple(resolve_pages(chosen, corpus)), corpus)


def unique(queries: Iterable[Query]) -> list[Query]:
    """All of them.

    Raises:
        InputError: An id is there twice; both places are named.
    """
    seen: dict[str, Query] = {}
    for query in queries:
        if query.id in seen:
            raise InputError(f"{query.where}: the id {query.id!r} is there already, in {seen[query.id].where}.")
        seen[query.id] = query
    return list(seen.values())


def _read(place: Path, *, required: bool) -> tuple[list[Query], list[Document], list[Path]]:
    """The queries of a data set, the passages that stand beside them, and its passage files."""
    if place.is_dir() and is_beir(place):
        asked = set(query_files(place).values())
        records = list(read_beir(place))
        files = [file for file in passage_files(place) if file not in asked and file.name != "qrels.tsv"]
        return unique(record.query for record in records), [], files
    if place.is_dir() and (queries := _find(place, "queries")) is not None:
        corpus = _find(place, "corpus")
        if corpus is None and required:
            raise InputError(f"{place} has no corpus.jsonl or corpus.jsonl.gz.")
        return unique(read_queries(queries)), [], [corpus] if corpus else []
    found: list[Record] = []
    files = []
    for file in sorted(place.iterdir()) if place.is_dir() else [place]:
        records_of = read_published(file)
        if records_of is not None:
            found += records_of
        elif place.is_dir() and file in passage_files(place):
            files.append(file)
    if not found:
        raise InputError(f"{place} is in no known format; name {KNOWN}.")
    carried = [passage for record in found for passage in record.passages]
    return unique(record.query for record in found), carried, files


def _find(folder: Path, stem: str) -> Path | None:
    return next((folder / name for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz") if (folder / name).is_file()), None)
