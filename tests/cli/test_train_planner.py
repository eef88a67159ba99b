"""`convcoa train-planner` at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.training.planner import grpo
from tests.cli.commands import convcoa
from tests.data import write_dataset
from tests.training.planner.tiny import TEXTS, TURNS, Library, tiny_policy

pytest.importorskip("trl")
pytestmark = pytest.mark.usefixtures("without_gpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("planner")
    rows = [
        {"id": one.id, "question": one.question, "history": one.history, "answer": one.answer, "split": one.split}
        | {"gold": [str(number)]}
        for number, one in enumerate(TURNS)
    ]
    passages = [{"id": str(number), "title": "", "text": text} for number, text in enumerate(TEXTS)]
    write_dataset(place / "talks", [*rows, rows[0] | {"id": "9", "split": "dev"}], passages)
    tiny_policy(place / "model")
    return place


@pytest.mark.parametrize(
    ("out", "more", "message"),
    [
        ("talks", [], "holds other files"),
        ("new", ["--weights", "final=a"], "takes NAME=NUMBER"),
        ("new", ["--weights", "speed=1"], "not 'speed'"),
        ("new", ["--weights", "malformed=0"], "must be below"),
        ("new", ["--match", "bleu"], "match must be one of"),
        ("new", ["--own", "math:none"], "cannot be imported"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, out: str, more: list[str], message: str) -> None:
    told = ["train-planner", str(folder / "talks"), "--model", "x", "--out", str(folder / out), *more]
    result = convcoa(*told, env={"COLUMNS": "300"}, code=2)
    assert message in result.output
    assert not (folder / "new").exists()


def test_several_data_sets_are_searched_together_and_keep_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text, answer in (("one", TEXTS[0], "1982"), ("two", TEXTS[1], "1893")):
        query = {"id": "q", "question": "When?", "answer": answer, "gold": [name, "same"], "split": "train"}
        passages = [{"id": name, "text": text}, {"id": "same", "text": "Of both."}]
        write_dataset(tmp_path / name, [query], passages)
    searched: list[Document] = []

    def over(documents: list[Document], **_: Any) -> Library:
        searched.extend(documents)
        return Library()

    trained: list[Any] = []

    def train(queries: Any, *_: Any, command: str, **__: Any) -> list[dict[str, float]]:
        trained.append((queries, command))
        return [{"reward": 0.5}]

    monkeypatch.setattr(HopfieldRetriever, "from_documents", over)
    monkeypatch.setattr(grpo, "train_planner", train)
    (tmp_path / "out").mkdir()
    told = ["train-planner", str(tmp_path / "one"), str(tmp_path / "two"), "--model", "x", "--out", str(tmp_path / "out")]
    result = convcoa(*told, "--reasoner", "m", "--base-url", "http://ana:pw@localhost/v1", code=0)
    assert "reward of sampled plans: 0.50 in the first 1 steps" in result.output
    ((queries, command),) = trained
    assert [one.answer for one in queries] == ["1982", "1893"]
    assert {(one.id, one.page_content) for one in searched} == {("one", TEXTS[0]), ("two", TEXTS[1]), ("same", "Of both.")}
    assert "--base-url" in command
    assert "pw" not in command
    query = {"id": "q", "question": "When?", "answer": "1", "gold": ["same"], "split": "train"}
    write_dataset(tmp_path / "two", [query], [{"id": "same", "text": "Of two."}])
    result = convcoa(*told, env={"COLUMNS": "300"}, code=2)
    assert "'same' stands for two texts, one of them in two" in result.output


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning")
def test_a_planner_is_trained(folder: Path) -> None:
    small = ["--steps", "1", "--questions", "2", "--group", "2", "--longest", "8", "--rank", "2", "--layers", "1", "--json"]
    out = ["--model", str(folder / "model"), "--out", str(folder / "out")]
    result = convcoa("train-planner", folder / "talks", *out, *small, code=0)
    curve = json.loads(result.stdout)["curve"]
    assert [row["step"] for row in curve] == [1]
    assert curve[0]["turn/malformed"] == 1
    told = json.loads((folder / "out" / "planner.json").read_text())
    assert told["command"].startswith("convcoa train-planner ")
    assert (told["layers"], told["reward"]["malformed"]) == (1, -2)
    names = json.loads((folder / "out" / "adapter_config.json").read_text())["target_modules"]
    assert names
    assert all(".1." in name for name in names)
