"""Fuzzing of what an index, a model and a run say of themselves: read as it is or refused in one line."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.retrieval.index.database import DATABASE, _checksum
from langgraph_convcoa.retrieval.index.index import open_or_create
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fuzz import fuzzed
from tests.retrieval.conftest import BagOfWords, put

pytestmark = pytest.mark.slow

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["int8", "float32", "x/../y", "../../etc", "\x00", ""])
)
VALUES = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8
)


def changed(manifest: dict[str, Any], change: dict[str, Any], drop: int) -> str:
    found = {**manifest, **change}
    for name in list(found)[:drop]:
        del found[name]
    return json.dumps(found)


def changes(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names) | st.text(max_size=5), VALUES, max_size=4)


HEAD = ["index", "dtype", "dimension", "encoder", "model", "settings", "file", "rows", "next_key", "commits"]
MODEL = [
    *("format", "version", "encoder", "settings", "weights", "state", "tower", "state_weight", "gate", "first_turns"),
    *("encoder_folder", "files"),
]
RAW = st.one_of(st.none(), st.text(max_size=30), VALUES.map(json.dumps), st.just("[" * 100_000))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = BagOfWords(dimension=32)
    made = open_or_create(tmp_path_factory.mktemp("fuzz") / "index", encoder, dtype="int8")
    put(made, [Document(f"Subject{n} is here.", id=f"d{n}") for n in range(5)], encoder)
    return Path(made.path)


@fuzzed
@given(changes(HEAD), st.sampled_from([0, 0, 0, 1, 10]), RAW)
@example({"rows": 10**12, "dimension": 10**9}, 0, None)
@example({"file": "../../../etc/passwd"}, 0, None)
@example({"settings": {"beta": "x", "k": -1}}, 0, None)
def test_any_head_of_an_index_is_used_or_refused(index: Path, change: dict[str, Any], drop: int, raw: str | None) -> None:
    with closing(sqlite3.connect(index / DATABASE)) as connection, connection:
        [(before,)] = connection.execute("SELECT body FROM head").fetchall()
        text = raw if raw is not None else changed(json.loads(before), change, drop)
        text = text.encode("utf-8", "replace").decode()
        connection.execute("UPDATE head SET body = ?, checksum = ?", (text, _checksum(text)))
    told = ""
    try:
        HopfieldRetriever.from_pretrained(index, encoder=BagOfWords(dimension=32), k=3).invoke("subject3")
    except ConvCoAError as error:
        told = str(error)
    finally:
        with closing(sqlite3.connect(index / DATABASE)) as connection, connection:
            connection.execute("UPDATE head SET body = ?, checksum = ?", (before, _checksum(before)))
    assert "\n" not in told


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "model"
    RetrieverModel("bag", {"beta": 3.0}).save(folder)
    return folder


@fuzzed
@given(changes(MODEL), st.sampled_from([0, 0, 0, 1, 10]), RAW)
@example({"files": {"../../../etc/passwd": "0"}}, 0, None)
@example({"files": {"\x00": "0"}}, 0, None)
@example({"files": {"a": None}}, 0, None)
@example({"encoder_folder": True}, 0, None)
def test_any_config_of_a_model_is_used_or_refused(model: Path, change: dict[str, Any], drop: int, raw: str | None) -> None:
    before = (model / "config.json").read_bytes()
    text = raw if raw is not None else changed(json.loads(before), change, drop)
    (model / "config.json").write_bytes(text.encode("utf-8", "replace"))
    told = ""
    try:
        assert isinstance(RetrieverModel.load(model).encoder, str)
    except ConvCoAError as error:
        told = str(error)
    finally:
        (model / "config.json").write_bytes(before)
    assert "\n" not in told


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "run"


@fuzzed
@given(VALUES, RAW)
def test_any_settings_of_a_run_are_resumed_or_refused(place: Path, value: Any, raw: str | None) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    text = raw if raw is not None else json.dumps(value)
    (place / "settings.json").write_bytes(text.encode("utf-8", "replace"))
    told = ""
    try:
        with RunFolder(place, {"methods": ["a"]}) as run:
            assert list(run.answers()) == []
    except ConvCoAError as error:
        told = str(error)
    assert "\n" not in told
