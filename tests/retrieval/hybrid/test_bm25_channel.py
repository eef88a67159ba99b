import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.hybrid.bm25 import LexicalIndex
from langgraph_convcoa.retrieval.hybrid.bm25_channel import LexicalChannel
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.memory import MemoryCorpus, build_memory

DOCUMENTS = [
    Document("Apples grow on trees.", id="a"),
    Document("Pears grow on trees, and plums too.", id="b"),
    Document("Networks store patterns.", id="c"),
    Document("Patterns of trees.", id="d"),
]
QUERIES = ["Where do trees grow?", "patterns", "of"]


def fresh(documents):
    return LexicalIndex(documents).scores(QUERIES)


def test_a_memory_that_changes(encoder):
    channel, corpus = LexicalChannel(), MemoryCorpus(build_memory(DOCUMENTS[:2], encoder))
    before = corpus.snapshot()
    np.testing.assert_array_equal(channel.scores(before, QUERIES), fresh(DOCUMENTS[:2]))
    corpus.add_documents(DOCUMENTS[2:], encoder)
    np.testing.assert_allclose(channel.scores(corpus.snapshot(), QUERIES), fresh(DOCUMENTS), atol=1e-6)
    corpus.delete(["a"])
    np.testing.assert_allclose(channel.scores(corpus.snapshot(), QUERIES), fresh(DOCUMENTS[1:]), atol=1e-6)
    other = build_memory(DOCUMENTS[::-1], encoder)
    np.testing.assert_allclose(channel.scores(other, QUERIES), fresh(DOCUMENTS[::-1]), atol=1e-6)
    # A search that began before goes on over its own state.
    np.testing.assert_allclose(channel.scores(before, QUERIES), fresh(DOCUMENTS[:2]), atol=1e-6)


def test_only_new_passages_are_read(encoder, monkeypatch):
    channel, corpus = LexicalChannel(), MemoryCorpus(build_memory(DOCUMENTS[:2], encoder))
    channel.scores(corpus.snapshot(), QUERIES)
    seen = []
    add = LexicalIndex.add
    monkeypatch.setattr(LexicalIndex, "add", lambda self, passages: add(self, seen.extend(passages) or list(passages)))
    channel.scores(corpus.snapshot(), QUERIES)
    corpus.add_documents(DOCUMENTS[2:3], encoder)
    channel.scores(corpus.snapshot(), QUERIES)
    assert [document.id for document in seen] == ["c"]


@pytest.fixture
def index(tmp_path, encoder):
    made = Index.create(tmp_path / "index", encoder)
    made.add_documents(DOCUMENTS, encoder)
    return made


def test_an_index_on_disk_with_deleted_and_updated_documents(index, encoder):
    channel = LexicalChannel()
    np.testing.assert_allclose(channel.scores(index.snapshot(), QUERIES), fresh(DOCUMENTS), atol=1e-6)
    index.delete(["b"])
    view = index.snapshot()
    found = channel.scores(view, QUERIES)
    np.testing.assert_allclose(found[:, view.alive], fresh([DOCUMENTS[i] for i in (0, 2, 3)]), atol=1e-6)
    assert not found[:, ~view.alive].any()
    index.update([Document("Nothing of that.", id="a")], encoder)
    index.compact()
    view = index.snapshot()
    documents = [view.passages[number] for number in range(len(view.keys))]
    np.testing.assert_allclose(channel.scores(view, QUERIES), fresh(documents), atol=1e-6)
    assert sorted(document.id for document in documents) == ["a", "c", "d"]


def test_what_was_saved_is_not_made_anew(index, tmp_path, encoder, monkeypatch):
    path = tmp_path / "lexical"
    index.delete(["a"])
    LexicalChannel().save(index.snapshot(), path)
    index.add_documents([Document("Trees again.", id="e")], encoder)
    seen = []
    add = LexicalIndex.add
    monkeypatch.setattr(LexicalIndex, "add", lambda self, passages: add(self, seen.extend(passages) or list(passages)))
    channel = LexicalChannel(path)
    view = index.snapshot()
    found = channel.scores(view, QUERIES)
    assert [document.id for document in seen] == ["e"]
    monkeypatch.undo()
    np.testing.assert_allclose(found[:, view.alive], fresh([*DOCUMENTS[1:], Document("Trees again.")]), atol=1e-6)


@pytest.mark.parametrize("trouble", ["damaged", "other", "missing"])
def test_a_saved_file_that_cannot_be_used_is_made_anew(index, tmp_path, encoder, caplog, trouble):
    path = tmp_path / "lexical"
    if trouble == "damaged":
        LexicalChannel().save(index.snapshot(), path)
        content = path.read_bytes()
        path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif trouble == "other":
        other = Index.create(tmp_path / "other", encoder)
        other.add_documents([Document("Trees elsewhere.", id="x"), Document("Patterns.", id="y")], encoder)
        LexicalChannel().save(other.snapshot(), path)
    np.testing.assert_allclose(LexicalChannel(path).scores(index.snapshot(), QUERIES), fresh(DOCUMENTS), atol=1e-6)
    assert ("made anew" in caplog.text) == (trouble == "damaged")


def test_an_empty_memory(encoder):
    channel = LexicalChannel()
    channel.scores(build_memory(DOCUMENTS, encoder), QUERIES)
    corpus = MemoryCorpus(build_memory(DOCUMENTS[:1], encoder))
    corpus.delete(["a"])
    assert channel.scores(corpus.snapshot(), QUERIES).shape == (3, 0)
