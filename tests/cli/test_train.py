"""`convcoa train` at the command line: what it makes, and what it says to bad input."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import Result

from langgraph_convcoa.retrieval.reranker import TrainedReranker
from tests.cli.commands import convcoa
from tests.data import write_dataset
from tests.retrieval.tiny_bert import save_tiny_encoder

pytest.importorskip("accelerate")

THINGS = ("network", "book", "river")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    passages = [{"id": f"p-{thing}", "title": thing, "text": f"the {thing} is a memory"} for thing in THINGS]
    single = [
        {"id": f"s-{t}{n}", "question": f"when was the {t} a {n}", "gold": [f"p-{t}"], "answer": "a"}
        for t in THINGS
        for n in THINGS
    ]
    talks = [
        {**row, "id": f"c{n}-{row['id']}", "history": [["who is the memory", "the book"]], "conversation_id": f"c{n}"}
        for n in range(6)
        for row in single[:3]
    ]
    for name, queries in (("single", single), ("talks", talks)):
        write_dataset(tmp_path / name, queries, passages)
    save_tiny_encoder(tmp_path / "encoder").with_name("encoder-plain").rename(tmp_path / "bert")
    return tmp_path


def run(folder: Path, *arguments: str, encoder: str = "bert", code: int | None = None) -> Result:
    return convcoa("train", "--device", "cpu", *arguments, "--encoder", folder / encoder, "--no-cache", code=code)


def test_help_shows_examples() -> None:
    result = convcoa("train", "--help", env={"COLUMNS": "160"}, code=0)
    assert "convcoa train data/mine --out small.model --head" in result.stdout


@pytest.mark.parametrize(("flags", "parts"), [((), ["query encoder"]), (("--head",), ["state"])])
def test_a_model_from_folders(folder: Path, flags: tuple[str, ...], parts: list[str]) -> None:
    data = [str(folder / "talks")] if flags else [str(folder / "single"), str(folder / "talks")]
    short = () if flags else ("--synthetic", "12")
    out = folder / "model"
    result = run(folder, *data, "--out", str(out), "--steps", "2", "--batch-size", "4", "--json", *flags, *short, code=0)
    report = json.loads(result.stdout)
    assert set(parts) <= set(report["parts"])
    assert "| talks |" in (out / "README.md").read_text()
    assert "convcoa train" in (out / "README.md").read_text()


def test_a_reranker_from_folders(folder: Path) -> None:
    data, out = [str(folder / "talks"), str(folder / "single")], folder / "reranker"
    short = ("--synthetic", "6", "--steps", "2", "--batch-size", "2")
    result = run(folder, *data, "--reranker", "--out", str(out), *short, "--json", encoder="encoder", code=0)
    report = json.loads(result.stdout)
    assert report["reranker"] == str(out / "reranker.safetensors")
    assert TrainedReranker(report["reranker"]).weight == report["weight"]
    card = (out / "README.md").read_text()
    assert "talks 12, made of single 6, single 8" in card
    assert "convcoa train" in card


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["talks", "--head", "--distil-only"], "leave out --head"), (["talks", "--start", "nothing"], "holds no model"),
        (["talks", "--head", "--reranker"], "leave out --head"), (["talks", "--reranker", "--start", "no"], "to start from"),
        (["talks", "--head", "--start", "nothing"], "leave out --head"), (["single", "--head"], "name at least one folder"),
        (["missing"], "does not exist"), (["bad"], "queries.jsonl, line 1"), (["untitled"], "without a title"),
        (["talks", "--device", "nowhere"], "--device nowhere cannot be used"),
        (["talks", "--out", "talks/queries.jsonl/model"], "cannot be written"),
        (["talks", "--out", "."], "name a folder inside it"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_before_anything_is_trained(
    folder: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"id": "q", "question": "who", "gold": ["p"]}
    write_dataset(folder / "bad", [row | {"gold": ["nowhere"], "history": [["a", "b"]]}], [{"id": "p", "text": "a"}])
    write_dataset(folder / "untitled", [row], [{"id": "p", "text": "a"}])
    monkeypatch.chdir(folder)
    # What is named last counts.
    result = run(folder, "--out", str(folder / "model"), *arguments, code=2)
    assert message in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert not (folder / "model").exists()


def test_the_card_gives_a_command_that_can_be_run_again(folder: Path) -> None:
    (folder / "talks").rename(folder / "my talks")
    out = folder / "model"
    given = [str(folder / "my talks"), str(folder / "single"), "--out", str(out), "--head", "--synthetic", "7", "--seed", "2"]
    assert run(folder, *given, "--steps", "1", "--batch-size", "4", "--encoder-dtype", "float32").exit_code == 0
    command = next(line for line in (out / "README.md").read_text().splitlines() if "convcoa train" in line)
    words = shlex.split(command)
    assert str(folder / "my talks") in words
    for option in ("--synthetic 7", "--seed 2", "--encoder-dtype float32"):
        assert option in command
