"""An index of an earlier version, which could keep an ANN index beside its patterns."""

import sqlite3

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.index.database import DATABASE
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

FILE = "approximate.safetensors"
DOCUMENTS = [Document("Apples grow on trees.", id="a"), Document("Networks store patterns.", id="b")]
QUESTION = "What grows on trees?"


def found(retriever):
    return [(one.id, one.metadata["score"], one.metadata["certified"]) for one in retriever.invoke(QUESTION)]


def head(path):
    with sqlite3.connect(path / DATABASE) as connection:
        return connection.execute("SELECT body FROM head").fetchone()[0]


@pytest.fixture(params=[None, {"candidates": 200, "over": "windows", "connectivity": 16, "expansion_add": 128}])
def old(request, encoder, tmp_path):
    path = tmp_path / "old"
    HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=path, graph=False, k=2)
    index = Index(path)
    index.put_settings({**index.head.settings, "approximate": request.param})
    if request.param:
        (path / FILE).write_bytes(b"a graph")
        (path / f".{FILE}.0123.partial").touch()
    assert '"approximate"' in head(path)
    return path


def test_it_opens_and_is_searched_exactly(old, encoder, tmp_path):
    before = {file.name: file.read_bytes() for file in old.iterdir()}
    new = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "new", graph=False, k=2)
    opened = HopfieldRetriever.from_pretrained(old, encoder=encoder)
    assert found(opened) == found(new)
    assert all(certified for _, _, certified in found(opened))
    assert {file.name: file.read_bytes() for file in old.iterdir()} == before


@pytest.mark.parametrize("change", ["settings", "another corpus", "another folder", "compact", "add"])
def test_the_file_goes_when_it_is_saved_again(old, encoder, tmp_path, change):
    opened = HopfieldRetriever.from_pretrained(old, encoder=encoder)
    expected, path = found(opened), old
    if change == "settings":
        opened.save_pretrained(old)
    elif change == "another corpus":
        HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, graph=False, k=2).save_pretrained(old)
    elif change == "another folder":
        path = tmp_path / "copy"
        opened.save_pretrained(path)
    elif change == "compact":
        opened.compact()
    else:
        more = [Document("Rivers flow.", id="c")]
        opened = HopfieldRetriever.from_documents(more, encoder=encoder, path=old, graph=False)
        opened.delete(["c"])
    assert found(HopfieldRetriever.from_pretrained(path, encoder=encoder)) == expected
    assert not list(path.glob("*approximate*"))
    assert "approximate" not in head(path)
