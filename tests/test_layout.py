"""The layout of the package: few entries in each folder, so that readers find files by name."""

from __future__ import annotations

from pathlib import Path

import langgraph_convcoa

PACKAGE = Path(langgraph_convcoa.__file__).parent


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


def test_the_package_folder_has_at_most_24_entries() -> None:
    assert len(entries(PACKAGE)) <= 24, entries(PACKAGE)


def test_no_folder_with_code_has_more_than_20_files() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    files = {folder: [name for name in entries(folder) if (folder / name).is_file()] for folder in folders}
    assert not {str(folder): len(names) for folder, names in files.items() if len(names) > 20}


def test_no_module_is_a_collection_of_utilities() -> None:
    assert not [path for path in PACKAGE.rglob("*.py") if path.stem in ("utils", "util", "helpers", "misc")]
