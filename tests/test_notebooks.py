"""Every notebook runs from start to end, offline, and shows what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def run(path: Path, folder: Path) -> str:
    """Execute a notebook in a kernel of its own; what it prints."""
    nbclient = pytest.importorskip("nbclient", reason="install the extra notebooks")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_of_the_actions(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("trafilatura")
    [path] = [path for path in NOTEBOOKS if path.name == "02_actions.ipynb"]
    shown = run(path, tmp_path)
    assert "region South, year 2019, revenue 900" in shown
    assert "a chat model writes SQL" in shown
    for row in ("knowledge_retrieval  filled", "web_querying         filled", "data_analysis        kept"):
        assert row in shown
    assert "[2] tax: The sales tax of Northland is 7 percent since 2018." in shown
    assert "ORDER BY revenue DESC LIMIT 1 gives region North, revenue 1234.5" in shown
    assert "only a SELECT is run, not DROP" in shown
    assert "North has 5000 inhabitants." in shown
