"""Files with conversations and pages are private to their owner; an error for a damaged or unreadable file is one line."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.actions.web.pages import WebCache
from langgraph_convcoa.errors import InputError, StoreError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.folder import ReplyCache, ReplyCacheError, RunFolder, keep_replies
from langgraph_convcoa.files import open_sqlite
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.storage import default_store
from langgraph_convcoa.storage.sqlite import SqliteStore
from langgraph_convcoa.storage.thread_export import KIND, file_as_values
from langgraph_convcoa.storage.threads import Threads
from tests.fakes import ScriptedModel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: oct(stat.S_IMODE(path.stat().st_mode)) for name, path in found.items()}


def private(folder: Path, made: str) -> None:
    found = modes(folder)
    assert any(made in name for name in found), found
    assert {mode for name, mode in found.items() if (folder / name).is_file()} <= {"0o600"}, found
    assert {mode for name, mode in found.items() if (folder / name).is_dir()} <= {"0o700"}, found


def test_a_store_its_log_and_its_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVCOA_DATA_DIR", str(tmp_path / "new" / "folder"))
    store = SqliteStore(default_store())

    async def use() -> None:
        async with store.opened() as saver, store.turn("t", 5):
            await saver.conn.execute("CREATE TABLE more (n)")  # type: ignore[attr-defined]
            await saver.conn.commit()  # type: ignore[attr-defined]
            private(tmp_path, "-wal")
            private(tmp_path, ".lock")
        async with store.shared() as shared:
            await shared.aput(("a",), "b", {"c": 1})
            private(tmp_path, "-wal")

    asyncio.run(use())
    store.scrub()
    private(tmp_path, "conversations.sqlite")


def test_caches_and_run_folders(tmp_path: Path) -> None:
    WebCache(tmp_path / "cache" / "web" / "web.sqlite").put("a", 1, 60)
    PatternCache(tmp_path / "patterns" / "patterns.sqlite")
    with RunFolder(tmp_path / "runs" / "one", {"methods": ["a"]}) as run:
        run.append(Answered("a", "1", "c", "Who?", 1, ("Ada",)))
        run.write_judgements(["{}"])
        run.drop_failed()
        private(tmp_path, "run.lock")
    private(tmp_path, "answers.jsonl")


def test_what_others_may_read_stays_so(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(0o755)
    open_sqlite(tmp_path / "shared" / "s.sqlite").execute("CREATE TABLE t (n)").connection.close()
    (tmp_path / "shared" / "s.sqlite").chmod(0o640)
    SqliteStore(tmp_path / "shared" / "new.sqlite").check()
    assert modes(tmp_path) == {"shared": "0o755", "shared/s.sqlite": "0o640", "shared/new.sqlite": "0o600"}


@pytest.mark.parametrize("path", ["x" * 300 + "/s.sqlite", "y" * 300, "file.txt/s.sqlite", "loop/s.sqlite"])
def test_a_store_in_a_place_that_cannot_be_read_is_one_line(path: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreError) as caught:
        SqliteStore(tmp_path / path).check()
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError), Threads(tmp_path / path):
        pass


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is unreadable for a superuser")
def test_a_store_in_a_folder_that_may_not_be_entered_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0)
    with pytest.raises(StoreError, match="permissions"):
        SqliteStore(tmp_path / "closed" / "s.sqlite").check()


_DEEP = json.loads("[" * 900 + "]" * 900)
_VALUES: list[Any] = [
    *("a", 1, None, True, [], {}, ["a"], [1], [["human", "x"]], [None], [{}], {"a": 1}, 2**64, [2**70], "\ud800", 1e308, _DEEP)
]


@pytest.mark.parametrize("field", ["messages", "knowledge_set", "thread_usage", "summary"])
@pytest.mark.parametrize("value", range(len(_VALUES)))
def test_a_thread_file_with_anything_in_it_is_taken_or_refused(field: str, value: int) -> None:
    try:
        file_as_values({"kind": KIND, "format": 1, "thread": "t", "state": {field: _VALUES[value]}})
    except InputError as error:
        told = str(error)
    else:
        told = ""
    assert "\n" not in told


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**30, 1.5, "1", None, True])
def test_a_thread_whose_round_is_no_number_that_is_stored_is_refused(number: Any) -> None:
    fields: dict[str, Any] = {"original_question": "q", "optimized_question": "q", "answer": "a"}
    fields |= {"sub_questions": {}, "information_summaries": {}}
    knowledge = {"Contextual knowledge set": [{"round": number, **fields}]}
    for data in (knowledge, {"kind": KIND, "format": 1, "thread": "t", "state": {"knowledge_set": knowledge}}):
        try:
            values = file_as_values(data)
        except InputError:
            continue
        assert -(2**63) <= values["knowledge_set"]["Contextual knowledge set"][0]["round"] < 2**64


_GOOD = asdict(Answered("a", "1", "c", "Who?", 1, ("Ada",)))
_LINES = [
    *("null", "1", '"a"', "[]", "{}", "[1]", "{", "\x00", '{"method": 1}', "NaN", "[" * 100_000, '{"a":' * 50_000),
    *(json.dumps({**_GOOD, name: value}) for name in _GOOD for value in (None, 3.5, "x", [1], {"a": [None]}, [[]])),
]


def test_a_damaged_line_of_a_run_is_one_line(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", {}) as run:
        run.append(Answered("a", "1", "c", "Who?", 1, ("Ada",)))
    told = []
    for line in _LINES:
        (tmp_path / "run" / "answers.jsonl").write_text(f"{json.dumps(_GOOD)}\n{line}\n")
        with RunFolder(tmp_path / "run", {}) as run:
            try:
                assert len(list(run.answers())) == 2
            except InputError as error:
                told.append(str(error))
    assert len(told) > 50
    assert [one for one in told if "line 2: not an answer of a run" not in one or "\n" in one] == []


@pytest.mark.parametrize(
    "text", ["null", "1", '"a"', "[1]", '["a"]', "[null]", "[[]]", '[{"type": 1}]', '[{"type": "ai"}]', "{", "[" * 90_000]
)
def test_a_damaged_reply_is_one_line(text: str, tmp_path: Path) -> None:
    model = keep_replies(ScriptedModel(replies=["x"]), cache := ReplyCache(tmp_path / "r.sqlite"))
    model.invoke("q")
    with closing(sqlite3.connect(cache.path)) as connection, connection:
        connection.execute("UPDATE replies SET reply = ?", (text,))
    with pytest.raises(ReplyCacheError):
        model.invoke("q")
    cache.close()
