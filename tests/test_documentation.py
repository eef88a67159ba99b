"""The examples of the README and the documentation run: the Python of a page in order, the commands over the demonstration."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph_convcoa import ConvCoAContext
from tests import ROOT
from tests.bounds import SECONDS, started

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Pages:
    """Runs Python in processes forked from a process that has imported everything (`tests.pages`)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._line() == "ready", "what the pages import cannot be imported"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return str(self.process.stdout.readline()).strip()

    def run(self, argv: list[str], folder: Path, environment: dict[str, str]) -> str:
        assert self.process.stdin is not None
        asked = {"argv": argv, "folder": str(folder), "environment": environment}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        assert self._line() == "0", (folder / "err").read_text(encoding="utf-8")
        return (folder / "out").read_text(encoding="utf-8")

    def session(self, page: Path, folder: Path) -> str:
        """Run the Python of a page; returns its output. The comments behind `print` must be true."""
        script = folder / "page.py"
        script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
        printed = self.run([str(script)], folder, {})
        for expected in re.findall(r"print\(.*\)  # (.+)$", script.read_text(encoding="utf-8"), re.MULTILINE):
            if "/" not in expected:
                assert expected in printed
        return printed


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    command = [sys.executable, "-m", "tests.pages"]
    with started(command, 12 * SECONDS, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Pages(process)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES[1:] if blocks(page, "python")], ids=name)
def test_the_python_of_a_page_runs_as_one_session(pages: Pages, page: Path, tmp_path: Path) -> None:
    pages.session(page, tmp_path)


@pytest.mark.slow
def test_the_readme_says_what_its_python_prints(pages: Pages, tmp_path: Path) -> None:
    printed = pages.session(ROOT / "README.md", tmp_path).splitlines()
    assert "1982" in printed[0]
    assert any(line.startswith("sparsemax ") for line in printed)
    assert printed[-1] == "sparsemax", "the question's own conversation says what it is about"


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
def test_the_commands_run(pages: Pages, command: str, tmp_path: Path) -> None:
    argv = ["-m", "langgraph_convcoa", *shlex.split(command)[1:]]
    assert pages.run(argv, tmp_path, {"CONVCOA_CACHE_DIR": str(tmp_path / "cache")}).strip()


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
    for node in "recall look plan approve verify repair correct answer remember knowledge_retrieval".split():  # noqa: SIM905
        assert node in picture


def test_notebooks_carry_their_outputs() -> None:
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        assert '"output_type"' in notebook.read_text(encoding="utf-8"), f"{notebook.name}: make notebooks"
