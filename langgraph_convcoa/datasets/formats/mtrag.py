"""MTRAG (Katsis et al. 2025): its generation tasks, and its retrieval tasks, which are BEIR's form (Thakur et al. 2021).

Generation task: {"task_id", "conversation_id", "input": [{"speaker", "text"}, ...], "contexts": [{"document_id", "text",
"title"}], "targets": [{"text"}]}; the contexts of the reference tasks are the gold passages. Retrieval: a folder with
`qrels/dev.tsv` and queries {"_id", "text"} in `*_lastturn.jsonl`, `*_questions.jsonl` (all user turns) and
`*_rewrite.jsonl`, or in `queries.jsonl`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from langgraph_convcoa.datasets.formats.conversations import UNANSWERABLE
from langgraph_convcoa.datasets.queries import Entries, Query, passage
from langgraph_convcoa.datasets.rows import Row, json_lines, table_rows
from langgraph_convcoa.datasets.splits import split_of
from langgraph_convcoa.errors import InputError

_SPEAKER = "|user|:"
_KINDS = ("lastturn", "questions", "rewrite")


def is_mtrag_task(row: Row) -> bool:
    """Whether an object is a generation task."""
    return {"task_id", "input", "contexts"} <= row.keys()


def read_mtrag_tasks(path: Path, rows: Iterable[Row]) -> Entries:
    """The questions of generation tasks and their contexts."""
    split = split_of(path)
    for row in rows:
        turns = row.objects("input")
        if not turns or turns[-1].get("speaker") != "user":
            raise row.error("`input` must end with the user's question.")
        contexts = [(entry.identity("document_id"), entry) for entry in row.objects("contexts")]
        for context, entry in contexts:
            yield passage(context, entry.text("text"), entry.optional("title"))
        identity = row.identity("task_id")
        targets = (target.optional("text") for target in row.objects("targets", optional=True))
        yield Query(
            id=identity,
            question=turns[-1].text("text"),
            history=_history(turns[:-1]),
            gold=tuple(dict.fromkeys(context for context, _ in contexts)),
            references=tuple(answer for answer in targets if answer.strip()),
            split=split,
            conversation=row.optional("conversation_id") or _conversation(identity),
            extra={"domain": row.get("Collection", "")} | ({} if contexts else UNANSWERABLE),
            where=row.where,
        )


def is_beir(folder: Path) -> bool:
    """Whether a folder holds judgements of relevance in BEIR's form."""
    return (folder / "qrels").is_dir() or (folder / "qrels.tsv").is_file()


def query_files(folder: Path) -> dict[str, Path]:
    """The files of a folder of retrieval tasks that hold queries, by kind: lastturn, questions, rewrite or queries."""
    files = {kind: sorted(folder.glob(f"*_{kind}.jsonl")) for kind in _KINDS}
    files["queries"] = [path for name in ("queries.jsonl", "queries.jsonl.gz") if (path := folder / name).is_file()]
    return {kind: paths[0] for kind, paths in files.items() if paths}


def read_beir(folder: Path) -> Iterable[Query]:
    """The judged queries of a folder of retrieval tasks.

    A query of `*_questions.jsonl` has the user's earlier turns as its history, with empty answers.

    Raises:
        InputError: There are no queries or judgements, or a row is not as published.
    """
    files = query_files(folder)
    main = files.get("questions") or files.get("lastturn") or files.get("queries")
    if main is None:
        raise InputError(f"{folder} has judgements and no queries; add queries.jsonl or NAME_questions.jsonl.")
    rewrites = {_id(row): _turns(row)[-1] for row in json_lines(files["rewrite"])} if "rewrite" in files else {}
    gold, splits = _judgements(folder)
    for row in json_lines(main):
        identity = _id(row)
        if identity not in gold:
            continue
        *earlier, question = _turns(row)
        yield Query(
            id=identity,
            question=question,
            history=tuple((turn, "") for turn in earlier),
            gold=tuple(dict.fromkeys(gold[identity])),
            rewrite=rewrites.get(identity, ""),
            split=splits[identity],
            conversation=_conversation(identity),
            where=row.where,
        )


def _judgements(folder: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The gold passages and the split of each query."""
    gold: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    for path in sorted((folder / "qrels").glob("*.tsv")) or [folder / "qrels.tsv"]:
        for row in table_rows(path):
            query, document = row.text("query-id"), row.text("corpus-id")
            try:
                relevant = float(row.get("score", "")) > 0
            except ValueError:
                raise row.error("`score` must be a number.") from None
            if relevant:
                gold.setdefault(query, []).append(document)
                splits.setdefault(query, split_of(path))
    return gold, splits


def _turns(row: Row) -> list[str]:
    turns = [turn.strip() for turn in row.text("text").split(_SPEAKER) if turn.strip()]
    if not turns:
        raise row.error("`text` has no question.")
    return turns


def _id(row: Row) -> str:
    return row.identity("_id" if "_id" in row else "id")


def _history(turns: list[Row]) -> tuple[tuple[str, str], ...]:
    pairs: list[list[str]] = []
    for turn in turns:
        user = turn.get("speaker") == "user"
        if user or not pairs:
            pairs.append(["", ""])
        pairs[-1][not user] = f"{pairs[-1][not user]} {turn.optional('text')}".strip()
    return tuple((question, answer) for question, answer in pairs)


def _conversation(identity: str) -> str:
    # Ids are the conversation's and the turn's: 2c07...<::>3.
    return identity.rpartition("<::>")[0]
