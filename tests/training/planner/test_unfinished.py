"""The folder of an unfinished training of a planner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.training.planner.unfinished import check_same, clear, cut, holds_others, last_checkpoint, read_rows


def test_a_training_is_resumed_with_the_same_settings_only(tmp_path: Path) -> None:
    path = tmp_path / "planner.json"
    told = {"training": {"steps": 2, "checkpoint_every": 1}, "reward": {"final": 1.0}, "data": "ab", "command": "one"}
    path.write_text(json.dumps(told))
    check_same(path, {**told, "command": "another", "training": {"steps": 2, "checkpoint_every": 5}})
    with pytest.raises(InputError, match="steps = 2, not 3"):
        check_same(path, {**told, "training": {"steps": 3}})
    with pytest.raises(InputError, match=r"final = 1\.0, not 2\.0"):
        check_same(path, {**told, "reward": {"final": 2.0}})
    path.write_text("[]")
    with pytest.raises(ModelError, match="missing or damaged"):
        check_same(path, told)


def test_of_checkpoints_the_last_whole_one_counts_and_the_curve_ends_there(tmp_path: Path) -> None:
    for step, state in ((2, "{}"), (10, "{}"), (12, '{"half')):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(state)
    last = last_checkpoint(tmp_path)
    assert last is not None
    assert last.name == "checkpoint-10"
    curve = tmp_path / "training.jsonl"
    curve.write_text('{"step": 9, "reward": 1}\n{"step": 10, "reward": 2}\n{"step": 11, "reward": 3}\n{"st')
    assert [row["reward"] for row in read_rows(curve)] == [1, 2, 3]
    cut(curve, 10)
    assert curve.read_text() == '{"step": 9, "reward": 1}\n{"step": 10, "reward": 2}\n'


def test_what_a_killed_clearing_leaves_is_still_a_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("planner.json", "training.jsonl", ".training.jsonl.12.partial"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "checkpoint-2").mkdir()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="busy"):
        patch.setattr("shutil.rmtree", lambda place: (_ for _ in ()).throw(OSError("busy")))
        clear(tmp_path)
    assert not holds_others(tmp_path)
    clear(tmp_path)
    assert not tmp_path.exists()
