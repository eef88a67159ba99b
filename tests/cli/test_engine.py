"""Documents into an engine and out of it by the command line: `index --to`, `--index URL`, CONVCOA_INDEX."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langgraph_convcoa.cli.documents import place_of
from langgraph_convcoa.cli.options import INDEX_VARIABLE
from langgraph_convcoa.cli.serve import ServeOptions, _collections
from tests import ROOT
from tests.cli.commands import asked_of, convcoa, error_of
from tests.fake_encoder import WordEncoder
from tests.memory_engine import MemoryEngine

pytestmark = pytest.mark.usefixtures("encoder")

PASSWORD = "secret-p4ss"
ADDRESS = f"postgresql://me:{PASSWORD}@db.example.org/docs?collection=papers"
QUESTION = "Who introduced sparsemax?"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryEngine]:
    """The engines that were opened, by their addresses."""
    engines: dict[str, MemoryEngine] = {}

    def open_engine(address: str, **_options: Any) -> MemoryEngine:
        return engines.setdefault(address, MemoryEngine())

    for module in ("engine.choose", "retriever"):
        monkeypatch.setattr(f"langgraph_convcoa.retrieval.{module}.open_engine", open_engine)
    return engines


@pytest.fixture
def loaded(opened: dict[str, MemoryEngine], docs: Path) -> MemoryEngine:
    convcoa("index", docs, "--to", ADDRESS, code=0)
    return opened[ADDRESS]


def test_documents_are_loaded_and_only_what_has_changed_is_encoded_again(
    loaded: MemoryEngine, docs: Path, encoder: WordEncoder
) -> None:
    assert loaded.count() == 2
    (docs / "sparsemax.txt").write_text("Sparsemax was introduced in 2016.")
    (docs / "new.txt").write_text("Entmax came later.")
    encoder.encoded.clear()
    report = json.loads(convcoa("index", docs, "--to", ADDRESS, "--json").stdout)
    place = "postgresql://db.example.org/docs?collection=papers&tenant=default"
    assert report == {"index": place, "added": 1, "updated": 1, "unchanged": 1, "written": 2, "passages": 3}
    assert not any("Hopfield" in text for text in encoder.encoded)
    result = convcoa("index", docs, "--to", ADDRESS)
    assert result.stdout == f"{place}: 0 documents added, 0 updated, 3 unchanged; 0 passages written, 3 there\n"


@pytest.mark.parametrize("what", ["search", "ask", "docs", "chat", "search named", "ask named"])
def test_an_engine_stands_where_an_index_stands(loaded: MemoryEngine, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    command, _, named = what.partition(" ")
    if named:
        monkeypatch.setenv(INDEX_VARIABLE, ADDRESS)
    result = convcoa(command, QUESTION, "--json") if named else asked_of(ADDRESS, QUESTION, what)
    assert result.exit_code == 0, result.output
    assert "Martins" in result.stdout
    assert PASSWORD not in result.output


@pytest.mark.parametrize("graph", ["convcoa", "retriever"])
def test_the_graphs_for_studio_take_an_engine(loaded: MemoryEngine, monkeypatch: pytest.MonkeyPatch, graph: str) -> None:
    monkeypatch.setenv(INDEX_VARIABLE, ADDRESS)
    compiled = runpy.run_path(str(ROOT / "graphs" / f"{graph}.py"))["graph"]
    out = asyncio.run(compiled.ainvoke({"messages": [HumanMessage(QUESTION)]}))
    assert "Martins" in (out["answer"] if graph == "convcoa" else out["documents"][0].page_content)


@pytest.mark.parametrize("graph", ["convcoa", "retriever"])
def test_the_graphs_for_studio_take_documents_before_an_index(docs: Path, monkeypatch: pytest.MonkeyPatch, graph: str) -> None:
    monkeypatch.setenv("CONVCOA_DOCS", str(docs))
    monkeypatch.setenv(INDEX_VARIABLE, "no such index")
    assert runpy.run_path(str(ROOT / "graphs" / f"{graph}.py"))["graph"]


def test_documents_that_are_named_come_before_the_environment(
    opened: dict[str, MemoryEngine], docs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(INDEX_VARIABLE, ADDRESS)
    assert "Martins" in convcoa("ask", QUESTION, "--docs", docs).stdout
    assert convcoa("index", docs, "--out", tmp_path / "made").exit_code == 0
    assert "Martins" in convcoa("ask", QUESTION, "--index", tmp_path / "made").stdout
    assert not opened
    assert convcoa("index", docs).exit_code == 0
    assert opened[ADDRESS].count() == 2


def test_what_cannot_be_done_with_an_engine_is_one_line_without_the_password(
    opened: dict[str, MemoryEngine], docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"redis://me:{PASSWORD}@db.example.org/1"
    cases = {
        "one place": ("index", docs, "--out", tmp_path / "made", "--to", ADDRESS),
        "--out DIR for a folder, or --to URL": ("index", docs),
        "--prune is of an index in a folder (--out DIR)": ("index", docs, "--to", ADDRESS, "--prune"),
        "--workers is of an engine": ("index", docs, "--out", tmp_path / "made", "--workers", "2"),
        "--workers are of Ray": ("index", docs, "--to", ADDRESS, "--workers", "2"),
        "which begins with postgresql": ("index", docs, "--to", other),
        "is the address of no engine": ("ask", "Who?", "--index", other),
        "does not exist": ("index", tmp_path / "nowhere", "--to", ADDRESS),
        "nothing to search": ("search", "who?"),
    }
    for said, arguments in cases.items():
        error = error_of(convcoa(*arguments))
        assert said in error
        assert PASSWORD not in error
    monkeypatch.setattr("langgraph_convcoa.errors.find_spec", lambda _name: None)
    missing = error_of(convcoa("index", docs, "--to", ADDRESS, "--ray", "local"))
    assert 'pip install "langgraph-convcoa[ray]"' in missing
    # Nothing was made, and nothing is known of them.
    assert all(engine.count() == 0 and not engine._encoder for engine in opened.values())
    assert not (tmp_path / "made").exists()


def test_ctrl_c_while_indexes_are_built_says_what_stands_and_the_same_command_goes_on(
    opened: dict[str, MemoryEngine], docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_engine: MemoryEngine) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MemoryEngine, "settle", interrupted)
        result = convcoa("index", docs, "--to", ADDRESS, code=130)
    assert "All documents are loaded and stay so" in result.stderr
    assert "load the same again" in result.stderr
    assert opened[ADDRESS].count() == 2
    assert "2 unchanged; 0 passages written" in convcoa("index", docs, "--to", ADDRESS).stdout


def test_what_is_kept_of_an_address_has_no_secret() -> None:
    assert place_of(f"{ADDRESS}&tenant=t") == "postgresql://db.example.org/docs?collection=papers&tenant=t"
    assert place_of("papers/?collection=a") == "papers/?collection=a"


def test_an_address_by_a_socket_or_by_options_names_its_server_and_no_secret() -> None:
    rest = f"user=me&password={PASSWORD}&collection=papers"
    own = {
        f"postgresql:///docs?host=/run/a&{rest}": "postgresql:///docs?host=/run/a",
        f"postgresql://me:{PASSWORD}@/docs?host=/run/b&{rest}": "postgresql:///docs?host=/run/b",
        f"postgresql://me@%2Frun%2Fa/docs?{rest}": "postgresql://%2Frun%2Fa/docs",
        f"postgresql:///docs?host=db&port=5433&{rest}": "postgresql:///docs?host=db&port=5433",
        f"postgresql://me@a:1,b:2/docs?{rest}": "postgresql://a:1,b:2/docs",
        f"milvus+file:///x/y.db?{rest}": "milvus+file:///x/y.db",
    }
    for address, place in own.items():
        assert place_of(address) == f"{place}{'&' if '?' in place else '?'}collection=papers&tenant=default"


def test_an_engine_is_a_collection_of_the_page(loaded: MemoryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INDEX_VARIABLE, ADDRESS)
    basis: Any = SimpleNamespace(fingerprint=lambda place: place)
    [shown] = _collections(ServeOptions(), basis)
    assert (shown.id, shown.name) == ("papers", "papers")
    assert PASSWORD not in shown.sources
    [shown] = _collections(ServeOptions(docs=[f"Articles={ADDRESS}"]), basis)
    assert shown.name == "Articles"
