"""`convcoa warm-start` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.planner.__main__ import main
from langgraph_convcoa.cli import documents
from langgraph_convcoa.cli.app import app
from tests.training.planner.tiny import PLANS, TEXTS, TURNS, Library, tiny_policy

pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("planner")
    (place / "data").mkdir()
    rows = [
        {
            "id": one.id,
            "question": one.question,
            "history": one.history,
            "answer": one.answer,
            "conversation_id": one.conversation,
        }
        for one in TURNS
    ]
    given = [row | {"split": "train"} for row in rows] + [
        row | {"id": f"dev {n}", "conversation_id": f"dev {n}", "split": "dev"} for n, row in enumerate(rows)
    ]
    passages = [{"id": str(number), "text": text} for number, text in enumerate(TEXTS)]
    for name, lines in (("queries", given), ("corpus", passages)):
        (place / "data" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plans = [{"id": turn.id, "plan": plan} for turn, plan in zip(TURNS, PLANS, strict=True)]
    (place / "plans.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plans))
    tiny_policy(place / "base")
    return place


def test_a_model_is_warm_started_and_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(documents, "searched", lambda *_, **__: Library())
    monkeypatch.chdir(folder)
    run = CliRunner().invoke
    small = ["--steps", "2", "--batch-size", "2", "--rank", "2", "--device", "cpu", "--json"]
    result = run(app, ["warm-start", "data", "--plans", "plans.jsonl", "--model", "base", "--out", "warm", *small])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["plans"], told["kept"], len(told["losses"])) == (2, 2, 2)
    card = json.loads((folder / "warm" / "warm_start.json").read_text())
    assert card["command"].startswith("convcoa warm-start data --out warm --plans plans.jsonl")
    main(["data", "base", "warm", "--longest", "8", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["questions"], report["split"], report["baseline"]) == (2, "dev", "base")
    assert [row["means"]["malformed"] for row in report["rows"]] == [1, 1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["warm-start", "data", "--plans", "gone", "--model", "base", "--out", "new"], "cannot be read as plans"),
        (["warm-start", "data", "--plans", "data", "--model", "base", "--out", "new"], "holds no run"),
        (["warm-start", "data", "--plans", "plans.jsonl", "--model", "base", "--out", "data"], "holds other files"),
        (["warm-start", "data", "--plans", "plans.jsonl", "--model", "base", "--out", "new", "--least", "9"], "earned 9"),
    ],
)
def test_wrong_input_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    monkeypatch.setattr(documents, "searched", lambda *_, **__: Library())
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in " ".join(result.stderr.split())
