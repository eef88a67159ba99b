"""What the README and the documentation show runs: the Python of a page in its order, its commands over the demonstration."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from langgraph_convcoa import ConvCoAContext
from tests import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_the_python_of_a_page_runs_as_one_session(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    # What a line is said to print stands behind it.
    for expected in re.findall(r"print\(.*\)  # (.+)$", script.read_text(encoding="utf-8"), re.MULTILINE):
        if "/" not in expected:
            assert expected in done.stdout


@pytest.mark.slow
def test_the_readme_says_what_its_python_prints(tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks(ROOT / "README.md", "python")), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=True)
    assert "1982" in done.stdout.splitlines()[0]
    assert any(line.startswith("sparsemax ") for line in done.stdout.splitlines())
    assert done.stdout.splitlines()[-1] == "filled", "the glossary explains CKS"


COMMANDS = sorted(
    {
        line
        for page in PAGES
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if line.startswith("convcoa ") and "--store" not in line
    }
)


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
    assert len(COMMANDS) >= 2


def test_the_readme_is_one_page() -> None:
    assert len(text("README.md").split()) <= 1300


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_setting_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text("docs/guides/settings.md"), re.MULTILINE)
    assert [name for name, _ in rows] == list(ConvCoAContext.model_fields)


def test_the_first_two_commands_are_the_ones_of_the_makefile() -> None:
    shown = [line.split("#")[0].strip() for line in blocks(ROOT / "README.md", "bash")[0].splitlines()]
    assert shown == ["make demo", "make test"]


def test_the_picture_names_the_nodes_of_the_graph() -> None:
    picture = text("docs/_static/turn.svg")
    for node in ("recall", "plan", "verify", "correct", "answer", "remember", "knowledge_retrieval"):
        assert node in picture


def test_notebooks_carry_their_outputs() -> None:
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        assert '"output_type"' in notebook.read_text(encoding="utf-8"), f"{notebook.name}: make notebooks"
