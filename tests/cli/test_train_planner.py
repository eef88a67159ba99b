"""`convcoa train-planner` at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from typer.testing import CliRunner

from langgraph_convcoa.cli.app import app
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.training.planner import grpo
from tests.training.planner.tiny import TEXTS, TURNS, Library, tiny_policy

pytest.importorskip("trl")
pytestmark = pytest.mark.usefixtures("without_gpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("planner")
    data = place / "talks"
    data.mkdir()
    rows = [
        {"id": one.id, "question": one.question, "history": one.history, "answer": one.answer, "split": one.split}
        | {"gold": [str(number)]}
        for number, one in enumerate(TURNS)
    ]
    passages = [{"id": str(number), "title": "", "text": text} for number, text in enumerate(TEXTS)]
    for name, lines in (("queries", [*rows, rows[0] | {"id": "9", "split": "dev"}]), ("corpus", passages)):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiny_policy(place / "model")
    return place


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the folder of the planner"),
        (["--out", "{folder}/new"], "name conversations and a model"),
        (["{folder}/talks", "--model", "x", "--out", "{folder}/talks"], "holds other files"),
        (["{folder}/talks", "--model", "x", "--out", "{folder}/new", "--weights", "final=a"], "takes NAME=NUMBER"),
        (["{folder}/talks", "--model", "x", "--out", "{folder}/new", "--weights", "speed=1"], "not 'speed'"),
        (["{folder}/talks", "--model", "x", "--out", "{folder}/new", "--weights", "malformed=0"], "must be below"),
        (["{folder}/talks", "--model", "x", "--out", "{folder}/new", "--match", "bleu"], "match must be one of"),
        (["{folder}/talks", "--model", "x", "--out", "{folder}/new", "--own", "math:none"], "cannot be imported"),
        (["--merge", "{folder}/talks", "--out", "{folder}/new"], "holds no adapter"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, arguments: list[str], message: str) -> None:
    told = [argument.format(folder=folder) for argument in arguments]
    result = CliRunner().invoke(app, ["train-planner", *told], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert message in result.output
    assert not (folder / "new").exists()


def test_data_sets_that_use_one_id_for_two_things_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text, answer in (("one", TEXTS[0], "1982"), ("two", TEXTS[1], "1893")):
        (tmp_path / name).mkdir()
        query = {"id": "q", "question": "When?", "answer": answer, "gold": ["p", "same"], "split": "train"}
        passages = [{"id": "p", "text": text}, {"id": "same", "text": "Of both."}]
        (tmp_path / name / "queries.jsonl").write_text(json.dumps(query) + "\n")
        (tmp_path / name / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    searched: list[Document] = []

    def over(documents: list[Document], **_: Any) -> Library:
        searched.extend(documents)
        return Library()

    trained: list[Any] = []
    monkeypatch.setattr(HopfieldRetriever, "from_documents", over)
    monkeypatch.setattr(grpo, "train_planner", lambda *given: trained.extend(given) or [])
    told = [str(tmp_path / "one"), str(tmp_path / "two"), "--model", "x", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["train-planner", *told, "--reasoner", "m", "--base-url", "http://ana:pw@localhost/v1"])
    assert result.exit_code == 0, result.output
    queries, environment, _, job, _ = trained
    assert [(one.id, one.answer, one.gold) for one in queries] == [
        ("q", "1982", ("p", "same")),
        ("2:q", "1893", ("2:p", "same")),
    ]
    assert {(one.id, one.page_content) for one in searched} == {("p", TEXTS[0]), ("2:p", TEXTS[1]), ("same", "Of both.")}
    assert environment.told()["reasoner"] == "ChatModelReasoner with the model 'm' at http://localhost/v1"
    # What is kept with the planner has no password.
    assert "--base-url" in job.command
    assert "pw" not in job.command


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning")
def test_a_planner_is_trained_and_merged(folder: Path) -> None:
    run = CliRunner().invoke
    small = ["--steps", "1", "--questions", "2", "--group", "2", "--longest", "8", "--rank", "2", "--layers", "1", "--json"]
    out = ["--model", str(folder / "model"), "--out", str(folder / "out")]
    result = run(app, ["train-planner", str(folder / "talks"), *out, *small])
    assert result.exit_code == 0, result.output
    curve = json.loads(result.stdout)["curve"]
    assert [row["step"] for row in curve] == [1]
    assert curve[0]["turn/malformed"] == 1
    told = json.loads((folder / "out" / "planner.json").read_text())
    assert told["command"].startswith("convcoa train-planner ")
    assert (told["turns"], told["training"]["layers"]) == (2, 1)
    names = json.loads((folder / "out" / "adapter_config.json").read_text())["target_modules"]
    assert names
    assert all(".1." in name for name in names)
    result = run(app, ["train-planner", "--merge", str(folder / "out"), "--out", str(folder / "merged"), "--json"])
    assert result.exit_code == 0, result.output
    assert (folder / "merged" / "model.safetensors").is_file()
