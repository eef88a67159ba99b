"""What the README shows runs: its Python in order, its commands over the demonstration's documents."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from langgraph_convcoa import ConvCoAContext
from tests import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_python_runs_as_one_session(tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks("python")), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("sparsemax ")
    assert lines[1] == "sparsemax"
    assert "1982" in done.stdout
    assert "0.857" in done.stdout
    assert any(line.startswith("False ") for line in lines), "1992 is refused"
    assert "filled" in lines, "the glossary explains CKS"


COMMANDS = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("convcoa ")]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path / "cache"))
    arguments = shlex.split(command)[1:]
    run = [sys.executable, "-m", "langgraph_convcoa", *arguments]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) >= 3


def test_every_setting_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", README[README.index("## Settings") :], re.MULTILINE)
    assert [name for name, _ in rows] == list(ConvCoAContext.model_fields)


def test_the_first_two_commands_are_the_ones_of_the_makefile() -> None:
    assert [line.split("#")[0].strip() for line in blocks("bash")[0].splitlines()] == ["make demo", "make test"]


def test_the_picture_names_the_nodes_of_the_graph() -> None:
    [picture] = blocks("mermaid")
    for node in ("recall", "plan", "verify", "correct", "answer", "remember", "knowledge_retrieval"):
        assert node in picture
