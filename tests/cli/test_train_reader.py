"""`convcoa train-reader` and `convcoa evaluate reader` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from langgraph_convcoa.cli.app import app
from tests.reasoning.graph_reader.tiny import TOWNS, save_tiny_model, towns

pytest.importorskip("accelerate")
pytest.importorskip("torch_geometric")
pytest.importorskip("peft")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cli")
    data, found = place / "towns", towns()
    data.mkdir()
    rows = [
        {"id": one.id, "question": one.question, "gold": list(one.gold), "answer": one.answer, "split": one.split}
        for one in found.queries
    ]
    passages = [{"id": one.id, "title": "Town", "text": one.page_content} for one in found.corpus]
    for name, lines in (("queries", rows), ("corpus", passages)):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    save_tiny_model(place / "model")
    return place


def test_readers_are_trained_and_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    # A reader may be named as a field of the report is.
    for name, flags in (("gold", ["--no-graph"]), ("graph", [])):
        small = ["--steps", "2", "--rank", "2", "--longest", "30", "--device", "cpu", "--json"]
        out = ["--model", str(folder / "model"), "--out", str(folder / name)]
        result = run(app, ["train-reader", str(folder / "towns"), *out, *small, *flags])
        assert result.exit_code == 0, result.output
        # Five of six questions are not of the split "dev".
        assert json.loads(result.stdout)["examples"] == 30
    told = json.loads((folder / "graph" / "reader.json").read_text())
    assert told["command"].startswith("convcoa train-reader ")
    assert told["trained"]["steps"] == 2
    monkeypatch.chdir(folder)
    result = run(app, ["evaluate", "reader", "towns", "gold", "graph", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["questions"], [row["graph"] for row in report["rows"]]) == (6, [False, True])
    assert [row["em_p"] is None for row in report["rows"]] == [True, False]
    for answer in report["answers"]:
        assert answer.keys() == {"id", "question", "gold", "readers"}
        assert answer["gold"] in TOWNS
        assert answer["readers"].keys() == {"gold", "graph"}
    twice = run(app, ["evaluate", "reader", "towns", "gold", str(folder / "gold")], env={"COLUMNS": "200"})
    assert twice.exit_code == 2
    assert "is named twice" in twice.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "no/such-model"], "cannot be loaded"),
        (["--device", "none"], "cannot be used here"),
        (["--out", "{folder}/towns"], "holds other files"),
        (["--steps", "0"], "--steps"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, arguments: list[str], message: str) -> None:
    given = ["--model", str(folder / "model"), "--out", str(folder / "new")]
    told = [argument.format(folder=folder) for argument in arguments]
    result = CliRunner().invoke(app, ["train-reader", str(folder / "towns"), *given, *told], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in result.output
    assert not (folder / "new").exists()


def test_a_folder_without_a_reader_is_named(folder: Path) -> None:
    result = CliRunner().invoke(app, ["evaluate", "reader", str(folder / "towns"), str(folder / "gone")])
    assert result.exit_code == 2
    assert "train one: convcoa train-reader" in result.output
