"""Fuzzing of data sets: rows of any form in every kind of file are read or refused with their line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import ConvCoAError
from tests.fuzz import fuzzed

pytestmark = pytest.mark.slow

NAMES = """
id _id question query history context answers answer gold passages title text conversation turn rewrite url evidence type level
supporting_facts data paragraphs qas dialogue Question Rewrite Context Conversation_no Turn_no Answer messages role content
references corpus
""".split()  # noqa: SIM905
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["q1", "user", "", "\x00", "\ud83d"])
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=15,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8) | VALUES, max_size=5)
GOOD = {"id": "q1", "question": "Who?", "answers": ["Ada"], "gold": ["p1"]}
TABLES = st.lists(st.lists(st.sampled_from(NAMES) | st.text(max_size=8), max_size=6).map("\t".join), max_size=6).map("\n".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def read(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    told = ""
    try:
        load_dataset(path)
    except ConvCoAError as error:
        told = str(error)
    finally:
        path.unlink()
    assert "\n" not in told


@fuzzed
@given(ROWS, st.sampled_from(["jsonl", "json"]), st.booleans())
def test_any_rows_are_read_or_refused(folder: Path, rows: list[Any], suffix: str, mixed: bool) -> None:
    rows = [GOOD, *rows] if mixed else rows
    text = "\n".join(map(json.dumps, rows)) if suffix == "jsonl" else json.dumps(rows)
    read(folder / f"queries.{suffix}", text.encode())


@fuzzed
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
    | TABLES.map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(["jsonl", "json", "tsv", "csv", "jsonl.gz"]),
)
@example(b"[" * 100_000, "json")
@example(b"[" * 100_000, "jsonl")
@example(b'{"a":' * 100_000, "jsonl")
@example(b"\r\x00", "csv")
@example(b"9" * 5_000, "json")
@example(b"9" * 5_000, "jsonl")
@example(b'{"question": ' + b"9" * 5_000 + b"}", "jsonl")
def test_any_file_is_read_or_refused(folder: Path, data: bytes, suffix: str) -> None:
    read(folder / f"queries.{suffix}", data)
