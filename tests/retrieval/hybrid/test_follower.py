from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index
from langgraph_convcoa.retrieval.hybrid.follower import BM25Follower
from langgraph_convcoa.retrieval.index.index import open_or_create
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from tests.retrieval.conftest import put

DOCUMENTS = [
    Document("Apples grow on trees.", id="a"),
    Document("Pears grow on trees, and plums too.", id="b"),
    Document("Networks store patterns.", id="c"),
    Document("Patterns of trees.", id="d"),
]
QUERIES = ["Where do trees grow?", "patterns", "of"]


def fresh(documents):
    return BM25Index(documents).scores(QUERIES)


def test_a_memory_that_changes(encoder):
    follower, corpus = BM25Follower(), MemoryCorpus(build_memory(DOCUMENTS[:2], encoder))
    before = corpus.snapshot()
    np.testing.assert_array_equal(follower.scores(before, QUERIES), fresh(DOCUMENTS[:2]))
    put(corpus, DOCUMENTS[2:], encoder)
    np.testing.assert_allclose(follower.scores(corpus.snapshot(), QUERIES), fresh(DOCUMENTS), atol=1e-6)
    corpus.delete(["a"])
    np.testing.assert_allclose(follower.scores(corpus.snapshot(), QUERIES), fresh(DOCUMENTS[1:]), atol=1e-6)
    other = build_memory(DOCUMENTS[::-1], encoder)
    np.testing.assert_allclose(follower.scores(other, QUERIES), fresh(DOCUMENTS[::-1]), atol=1e-6)
    # A search that began before goes on over its own state.
    np.testing.assert_allclose(follower.scores(before, QUERIES), fresh(DOCUMENTS[:2]), atol=1e-6)


def test_only_new_passages_are_read(encoder, added):
    follower, corpus = BM25Follower(), MemoryCorpus(build_memory(DOCUMENTS[:2], encoder))
    follower.scores(corpus.snapshot(), QUERIES)
    added.clear()
    follower.scores(corpus.snapshot(), QUERIES)
    put(corpus, DOCUMENTS[2:3], encoder)
    follower.scores(corpus.snapshot(), QUERIES)
    assert added == ["c"]


@pytest.fixture
def index(tmp_path, encoder):
    made = open_or_create(tmp_path / "index", encoder)
    put(made, DOCUMENTS, encoder)
    return made


def test_an_index_on_disk_with_deleted_and_updated_documents(index, encoder):
    follower = BM25Follower()
    np.testing.assert_allclose(follower.scores(index.snapshot(), QUERIES), fresh(DOCUMENTS), atol=1e-6)
    index.delete(["b"])
    view = index.snapshot()
    found = follower.scores(view, QUERIES)
    np.testing.assert_allclose(found[:, view.alive], fresh([DOCUMENTS[i] for i in (0, 2, 3)]), atol=1e-6)
    assert not found[:, ~view.alive].any()
    put(index, [Document("Nothing of that.", id="a")], encoder, replace=True)
    index.compact()
    view = index.snapshot()
    documents = [passage.document for passage in read(view)]
    np.testing.assert_allclose(follower.scores(view, QUERIES), fresh(documents), atol=1e-6)
    assert sorted(document.id for document in documents) == ["a", "c", "d"]


def test_what_was_saved_is_not_made_anew(index, tmp_path, encoder, added):
    path = tmp_path / "lexical"
    index.delete(["a"])
    BM25Follower(path).save(index.snapshot())
    put(index, [Document("Trees again.", id="e")], encoder)
    added.clear()
    follower = BM25Follower(path)
    view = index.snapshot()
    found = follower.scores(view, QUERIES)
    assert added == ["e"]
    np.testing.assert_allclose(found[:, view.alive], fresh([*DOCUMENTS[1:], Document("Trees again.")]), atol=1e-6)


@pytest.mark.parametrize("trouble", ["damaged", "other", "missing"])
def test_a_saved_file_that_cannot_be_used_is_made_anew(index, tmp_path, encoder, caplog, trouble):
    path = tmp_path / "lexical"
    if trouble == "damaged":
        BM25Follower(path).save(index.snapshot())
        content = path.read_bytes()
        path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif trouble == "other":
        other = open_or_create(tmp_path / "other", encoder)
        put(other, [Document("Trees elsewhere.", id="x"), Document("Patterns.", id="y")], encoder)
        BM25Follower(path).save(other.snapshot())
    np.testing.assert_allclose(BM25Follower(path).scores(index.snapshot(), QUERIES), fresh(DOCUMENTS), atol=1e-6)
    assert ("rebuilt" in caplog.text) == (trouble != "missing")


def test_threads_may_add_and_search_at_once(encoder):
    follower, corpus = BM25Follower(), MemoryCorpus(build_memory(DOCUMENTS, encoder))

    def search():
        return all(follower.scores(corpus.snapshot(), ["networks word7 word30"])[0, 2] > 0 for _ in range(30))

    with ThreadPoolExecutor() as pool:
        searches = [pool.submit(search) for _ in range(3)]
        for number in range(30):
            put(corpus, [Document(f"word{number} word{number + 1}")], encoder)
        assert all(done.result() for done in searches)
    assert follower.scores(corpus.snapshot(), ["word30"]).shape == (1, 34)


def test_a_file_that_another_process_wrote_is_read_instead_of_many_passages(index, tmp_path, encoder, added):
    path = tmp_path / "lexical"
    reader, writer = BM25Follower(path), BM25Follower(path)
    writer.save(index.snapshot())
    reader.scores(index.snapshot(), QUERIES)
    trees = [Document(f"Tree number{n}.", id=f"t{n}") for n in range(300)]
    put(index, trees, encoder)
    writer.keep_up(index.snapshot())
    added.clear()
    found = reader.scores(index.snapshot(), QUERIES)
    assert added == []
    np.testing.assert_allclose(found, fresh([*DOCUMENTS, *trees]), atol=1e-6)
