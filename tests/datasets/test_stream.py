"""Collections of passages read as a stream, whatever their number."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path

import pytest

from langgraph_convcoa.datasets.read import stream_passages
from langgraph_convcoa.errors import InputError
from tests.data import write_rows


def ids(path: Path) -> list[str | None]:
    return [passage.id for passage in stream_passages(path)]


def test_files_of_a_collection_below_a_folder(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "commoncrawl" / "part-1.jsonl.gz", [{"id": "a_p0", "contents": "x"}, {"id": "a_p1", "contents": "y"}]
    )
    (tmp_path / "wiki.tsv").write_text("id\ttext\ttitle\n7\tz\tAda\n", encoding="utf-8")
    write_rows(tmp_path / "clapnq_questions.jsonl", [{"_id": "q", "text": "|user|: Who?"}])
    write_rows(tmp_path / "dev.jsonl", [{"task_id": "t", "text": "no id"}])
    (tmp_path / "empty.jsonl").touch()
    assert ids(tmp_path) == ["a_p0", "a_p1", "7"]
    assert ids(tmp_path / "wiki.tsv") == ["7"]


def test_a_data_sets_folder_gives_its_corpus(tmp_path: Path) -> None:
    write_rows(tmp_path / "corpus.jsonl", [{"id": "p", "text": "x"}])
    write_rows(tmp_path / "queries.jsonl", [{"id": "q", "question": "?", "text": "y"}])
    assert ids(tmp_path) == ["p"]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; name a passage file"):
        stream_passages(tmp_path / "none")
    with pytest.raises(InputError, match="has no passages"):
        stream_passages(tmp_path)
    found = stream_passages(write_rows(tmp_path / "bad.jsonl", [{"id": "1", "text": "x"}, {"id": "2"}]))
    assert next(found).id == "1"
    with pytest.raises(InputError, match=r"bad\.jsonl, line 2: `text`"):
        next(found)


def test_memory_does_not_grow_with_the_collection(tmp_path: Path) -> None:
    path = tmp_path / "wiki.tsv"
    text = "a passage of some words " * 20
    with path.open("w", encoding="utf-8") as file:
        file.write("id\ttext\ttitle\n")
        file.writelines(f"{number}\t{text}\tTitle\n" for number in range(20_000))
    assert path.stat().st_size > 9_000_000
    found = stream_passages(path)
    list(islice(found, 10))
    tracemalloc.start()
    assert sum(1 for _ in found) == 20_000 - 10
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000
