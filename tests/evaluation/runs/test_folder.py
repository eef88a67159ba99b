"""A run's folder: settings that must agree, lines that a kill tears, one writer at a time."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.folder import RunFolder


def record(n: int, method: str = "m", error: str = "", conversation: str = "c") -> Answered:
    return Answered(method, f"q{n}", conversation, "Wo läuft das?", 1, ("x",), answer=f"answer {n} \ud800 ü", error=error)


def test_answers_come_back_and_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    settings = {"data": "d", "k": 5}
    with RunFolder(tmp_path / "deep" / "run", settings) as folder:
        for n in range(3):
            folder.append(record(n))
    path = tmp_path / "deep" / "run" / "answers.jsonl"
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole[:100].replace(b"\n", b""))
    with RunFolder(path.parent, settings) as folder:
        assert [one.id for one in folder.answers()] == ["q0", "q1", "q2"]
        folder.append(record(3))
        folder.append(record(4, "other"))
        assert [one.id for one in folder.answers({"m"})] == ["q0", "q1", "q2", "q3"]
    assert path.read_bytes().startswith(whole)


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    with RunFolder(tmp_path, {"data": "d", "sample": 100}) as folder:
        folder.append(record(1))
    with pytest.raises(InputError, match=r"made with sample = 100, not 200.*--fresh"):
        RunFolder(tmp_path, {"data": "d", "sample": 200})
    with RunFolder(tmp_path, {"data": "d", "sample": 200}, fresh=True) as folder:
        assert list(folder.answers()) == []
    assert json.loads((tmp_path / "settings.json").read_text()) == {"data": "d", "sample": 200}


@pytest.mark.parametrize("files", range(9))
def test_a_kill_while_starting_afresh_leaves_no_answers_to_other_settings(
    tmp_path: Path, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder(tmp_path, {"data": "d"}) as folder:
        folder.append(record(1))
    unlink, removed = Path.unlink, 0

    def killed(path: Path, **options: bool) -> None:
        nonlocal removed
        if removed == files:
            raise KeyboardInterrupt
        removed += 1
        unlink(path, **options)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killed)
        RunFolder(tmp_path, {"data": "other"}, fresh=True).__exit__(None, None, None)
    with suppress(InputError), RunFolder(tmp_path, {"data": "other"}) as folder:
        assert list(folder.answers()) == []


def test_methods_and_a_judge_may_change(tmp_path: Path) -> None:
    settings = {"data": "d", "methods": ["a"], "judge": None}
    with RunFolder(tmp_path, settings) as folder:
        folder.append(record(1))
    with RunFolder(tmp_path, {**settings, "methods": ["b"], "judge": "x"}) as folder:
        assert [one.id for one in folder.answers()] == ["q1"]
    assert json.loads((tmp_path / "settings.json").read_text())["judge"] == "x"


def test_a_folder_of_something_else_is_refused_even_afresh(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(InputError, match="holds no run"):
            RunFolder(tmp_path, {}, fresh=fresh)
    with pytest.raises(InputError, match="holds no run"):
        RunFolder(tmp_path / "thesis.txt", {})
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_failed_questions_and_what_came_after_them_can_be_forgotten(tmp_path: Path) -> None:
    with RunFolder(tmp_path, {}) as folder:
        for row in (record(1), record(2, error="no"), record(3), record(4, "other"), record(5, conversation="d")):
            folder.append(row)
        assert (folder.drop_failed(), [one.id for one in folder.answers()]) == (2, ["q1", "q4", "q5"])
        folder.append(record(2))
        assert (folder.drop_failed(), [one.id for one in folder.answers()]) == (0, ["q1", "q4", "q5", "q2"])


def test_two_cannot_write_at_the_same_time(tmp_path: Path) -> None:
    with RunFolder(tmp_path, {}), pytest.raises(InputError, match="another process"):
        RunFolder(tmp_path, {})
    RunFolder(tmp_path, {}).__exit__(None, None, None)
