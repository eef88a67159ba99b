"""Runs the notebooks and keeps their outputs, without warnings and paths of this machine: `make notebooks`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parents[1] / "notebooks"
MADE = re.compile(re.escape(tempfile.gettempdir() + "/") + r"tmp\w+/")


def run(path: Path) -> None:
    """Run one notebook in a folder of its own and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_portable(output) for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(notebook, path)


def _portable(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    if "text" in output:
        output.text = MADE.sub("", output.text)
    return output


if __name__ == "__main__":
    for found in sorted(FOLDER.glob("*.ipynb")):
        run(found)
