"""MTRAG (Katsis et al. 2025): its generation tasks, and its retrieval tasks, which are BEIR's form (Thakur et al. 2021).

Generation task: {"task_id", "conversation_id", "input": [{"speaker", "text"}, ...], "contexts": [{"document_id", "text",
"title"}], "targets": [{"text"}]}; the contexts of the reference tasks are the gold passages. Retrieval: a folder with
`qrels/dev.tsv` and queries {"_id", "text"} in `*_lastturn.jsonl`, `*_questions.jsonl` (all user turns) and
`*_rewrite.jsonl`, or in `queries.jsonl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.formats.published import Record, Records, no_gold, number_field, passage, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_lines, list_field, optional_field, tab_rows, text_field
from langgraph_convcoa.errors import InputError

_SPEAKER = "|user|:"
_KINDS = ("lastturn", "questions", "rewrite")


def is_mtrag_task(row: Mapping[str, Any]) -> bool:
    """Whether an object is a generation task."""
    return {"task_id", "input", "contexts"} <= row.keys()


def read_mtrag_tasks(path: Path) -> Records:
    """The generation tasks of a file; read as they are needed.

    Raises:
        InputError: A task is not as published; its file and line are named.
    """
    split = split_of(path)
    for where, row in json_lines(path):
        turns = list_field(row, "input", where)
        if not turns or turns[-1].get("speaker") != "user":
            raise InputError(f"{where}: `input` must end with the user's question.")
        passages = tuple(_context(entry, where) for entry in list_field(row, "contexts", where))
        targets = list_field(row, "targets", where) if row.get("targets") else [{}]
        answers = [optional_field(target, "text", where) for target in targets]
        identity = number_field(row, "task_id", where)
        gold = tuple(dict.fromkeys(str(document.id) for document in passages))
        query = Query(
            id=identity,
            question=text_field(turns[-1], "text", where),
            history=_history(turns[:-1], where),
            gold=gold,
            answer=answers[0],
            references=tuple(answer for answer in answers if answer.strip()),
            split=split,
            conversation=optional_field(row, "conversation_id", where) or _conversation(identity),
            extra=no_gold({"domain": row.get("Collection", "")}, gold),
            where=where,
        )
        yield Record(query, passages)


def is_beir(folder: Path) -> bool:
    """Whether a folder holds judgements of relevance in BEIR's form."""
    return (folder / "qrels").is_dir() or (folder / "qrels.tsv").is_file()


def query_files(folder: Path) -> dict[str, Path]:
    """The files of a folder of retrieval tasks that hold queries, by kind: lastturn, questions, rewrite or queries."""
    files = {kind: next(iter(sorted(folder.glob(f"*_{kind}.jsonl"))), None) for kind in _KINDS}
    files["queries"] = next(
        (folder / name for name in ("queries.jsonl", "queries.jsonl.gz") if (folder / name).is_file()), None
    )
    return {kind: path for kind, path in files.items() if path is not None}


def read_beir(folder: Path) -> Records:
    """The judged queries of a folder of retrieval tasks, without passages.

    A query of `*_questions.jsonl` has the user's earlier turns as its history, with empty answers.

    Raises:
        InputError: There are no queries or judgements, or a row is not as published.
    """
    files = query_files(folder)
    main = files.get("questions") or files.get("lastturn") or files.get("queries")
    if main is None:
        raise InputError(f"{folder} has judgements and no queries; add queries.jsonl or NAME_questions.jsonl.")
    rewrites = {}
    if "rewrite" in files:
        rewrites = {_id(row, where): _turns(row, where)[-1] for where, row in json_lines(files["rewrite"])}
    gold, splits = _judgements(folder)
    for where, row in json_lines(main):
        identity = _id(row, where)
        if identity not in gold:
            continue
        *earlier, question = _turns(row, where)
        yield Record(
            Query(
                id=identity,
                question=question,
                history=tuple((turn, "") for turn in earlier),
                gold=tuple(dict.fromkeys(gold[identity])),
                rewrite=rewrites.get(identity, ""),
                split=splits[identity],
                conversation=_conversation(identity),
                where=where,
            )
        )


def _judgements(folder: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    gold: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    files = sorted((folder / "qrels").glob("*.tsv")) or [folder / "qrels.tsv"]
    for path in files:
        for where, row in tab_rows(path):
            query, document = (text_field(row, key, where) for key in ("query-id", "corpus-id"))
            try:
                relevant = float(row.get("score", "")) > 0
            except ValueError:
                raise InputError(f"{where}: `score` must be a number.") from None
            if relevant:
                gold.setdefault(query, []).append(document)
                splits.setdefault(query, split_of(path))
    return gold, splits


def _turns(row: Row, where: str) -> list[str]:
    text = text_field(row, "text", where)
    turns = [turn.strip() for turn in text.split(_SPEAKER)] if _SPEAKER in text else [text.strip()]
    turns = [turn for turn in turns if turn]
    if not turns:
        raise InputError(f"{where}: `text` has no question.")
    return turns


def _id(row: Row, where: str) -> str:
    return number_field(row, "_id" if "_id" in row else "id", where)


def _context(row: Row, where: str) -> Document:
    return passage(
        number_field(row, "document_id", where), text_field(row, "text", where), optional_field(row, "title", where)
    )


def _history(turns: list[Row], where: str) -> tuple[tuple[str, str], ...]:
    pairs: list[list[str]] = []
    for turn in turns:
        text = optional_field(turn, "text", where)
        if turn.get("speaker") == "user" or not pairs:
            pairs.append(["", ""])
        index = 0 if turn.get("speaker") == "user" else 1
        pairs[-1][index] = f"{pairs[-1][index]} {text}".strip()
    return tuple((question, answer) for question, answer in pairs)


def _conversation(identity: str) -> str:
    # Ids are the conversation's and the turn's: 2c07...<::>3.
    return identity.rpartition("<::>")[0]
