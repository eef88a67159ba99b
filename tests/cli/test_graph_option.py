"""The evidence graph at the terminal: kept by `index`, followed by `search`, told by `ask --why`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import convcoa


def test_an_index_keeps_its_graph_until_it_is_told_otherwise(tmp_path: Path) -> None:
    from langgraph_convcoa.retrieval.index.index import GRAPH_FILE

    docs, made = tmp_path / "docs", tmp_path / "made"
    docs.mkdir()
    (docs / "film.md").write_text("# Ed Wood\n\nIt was directed by Tim Burton.")
    (docs / "man.md").write_text("# Tim Burton\n\nHe came from Burbank.")
    for number in range(4):
        (docs / f"other{number}.md").write_text(f"# Film {number}\n\nThe director of film {number} lived where it was made.")
    assert json.loads(convcoa("index", docs, "--out", made, "--json").stdout)["graph"] is True
    assert json.loads(convcoa("index", docs, "--out", tmp_path / "plain", "--json", "--no-graph").stdout)["graph"] is False
    assert json.loads(convcoa("index", docs, "--out", tmp_path / "plain", "--json").stdout)["graph"] is False
    assert "with an evidence graph" in convcoa("index", docs, "--out", made).stdout
    assert (made / GRAPH_FILE).is_file()
    found = convcoa("search", made, "Where did the director of Ed Wood live?", "-k", "3").stdout
    assert '"Tim Burton" -> Tim Burton' in found
    rows = json.loads(convcoa("search", made, "Where did the director of Ed Wood live?", "--no-graph", "--json").stdout)
    assert all("graph_path" not in row for row in rows)
    assert json.loads(convcoa("index", docs, "--out", made, "--json", "--no-graph").stdout)["graph"] is False
    assert not (made / GRAPH_FILE).exists()


def test_a_path_in_the_metadata_of_documents_is_not_that_of_a_graph(tmp_path: Path) -> None:
    from langchain_core.documents import Document

    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    page = Document("It is made of wood.", id="ed", metadata={"title": "Ed", "path": "docs/a.txt"})
    HopfieldRetriever.from_documents([page], path=tmp_path / "made")
    plain = convcoa("search", tmp_path / "made", "wood", code=0)
    assert "ed" in plain.stdout.split()
    assert "->" not in plain.stdout
    [row] = json.loads(convcoa("search", tmp_path / "made", "wood", "--json").stdout)
    assert not {"path", "graph_path"} & set(row)
