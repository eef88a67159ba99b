"""Pickles and deep copies of retrievers, and what their repr says."""

import copy
import math
import pickle

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from langgraph_convcoa.retrieval.encoders.base import RecentEncoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus
from langgraph_convcoa.retrieval.query.model import default_model
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.test_retriever import DOCUMENTS, HISTORY, ids, whole
from tests.retrieval.test_vectorstore import in_memory

COPIES = {"pickle": lambda thing: pickle.loads(pickle.dumps(thing)), "deep copy": copy.deepcopy}


@pytest.fixture(params=COPIES.values(), ids=COPIES)
def copied(request):
    return request.param


@pytest.mark.parametrize("where", ["float32", "int8", "disk", "store"])
@pytest.mark.parametrize("used", [True, False])
def test_a_copy_finds_the_same(tmp_path, encoder, copied, where, used):
    settings = {"k": 2, "beta": math.inf, "filter": {"year": {"$gte": 1990}}, "score_threshold": -1.0}
    if where == "store":
        retriever = HopfieldRetriever.from_vectorstore(in_memory(), **settings)
    elif where == "disk":
        retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index", **settings)
    else:
        retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, dtype=where, **settings)
    expected = whole(retriever.invoke("who proposed sparsemax?", history=HISTORY)) if used else None
    other = copied(retriever)
    found = whole(other.invoke("who proposed sparsemax?", history=HISTORY))
    assert found
    assert found == (expected or whole(retriever.invoke("who proposed sparsemax?", history=HISTORY)))
    assert (other.k, other.beta, other.filter) == (2, math.inf, {"year": {"$gte": 1990}})
    assert other.search_batch(["apples"]) == retriever.search_batch(["apples"])


def test_a_copy_in_memory_changes_by_itself(encoder, copied):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, k=1)
    retriever.invoke("apples")
    other = copied(retriever)
    other.delete(["apples"])
    retriever.delete(["dpr"])
    # Both give the same key to another passage.
    other.add_texts(["Quinces are sour."], ids=["q"])
    retriever.add_texts(["Sloes are blue."], ids=["s"])
    assert (ids(retriever.invoke("apples")), ids(retriever.invoke("sloes"))) == (["apples"], ["s"])
    assert (ids(other.invoke("karpukhin")), ids(other.invoke("quinces"))) == (["dpr"], ["q"])
    assert other.corpus.snapshot().source != retriever.corpus.snapshot().source


def test_a_copy_over_an_index_is_over_the_same_files(tmp_path, encoder, copied):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, k=1, path=tmp_path / "index")
    other = copied(retriever)
    other.add_texts(["Quinces are sour."], ids=["q"])
    assert ids(retriever.invoke("quinces")) == ["q"]
    assert len(pickle.dumps(retriever)) < 20_000


def test_encoders_are_copied_by_their_settings(copied):
    encoder = SentenceTransformerEncoder("some/model", "cpu", 7, dtype="float32")
    other = copied(RecentEncoder(encoder, 5)).encoder
    assert repr(other) == repr(encoder)
    assert (other.device, other.batch_size) == ("cpu", 7)


def test_the_embeddings_of_langchain_are_copied(copied):
    retriever = HopfieldRetriever.from_texts(["One.", "Two."], encoder=DeterministicFakeEmbedding(size=8), k=1)
    other = copied(retriever)
    assert other.encoder.name == retriever.encoder.name
    assert whole(other.invoke("One.")) == whole(retriever.invoke("One."))


def test_the_model_of_the_package_is_named_in_a_pickle():
    model = default_model()
    if model is None:
        pytest.skip("this package was built without its default model")
    retriever = HopfieldRetriever(corpus=MemoryCorpus(), k=3)
    assert retriever.model is model
    stored = pickle.dumps(retriever)
    assert len(stored) < 20_000
    assert pickle.loads(stored).model is model
    assert copy.deepcopy(retriever).model is model
    weights = copy.deepcopy(model.query_encoder)
    assert weights is model.query_encoder
    again = pickle.loads(pickle.dumps(model.query_encoder))
    assert repr(again) == repr(weights)
    assert again.differences.tensors.keys() == weights.differences.tensors.keys()


def test_repr_says_what_is_held(tmp_path, encoder):
    model = SentenceTransformerEncoder("some/model")
    assert repr(HopfieldRetriever(corpus=MemoryCorpus(), encoder=model, model="untrained")) == (
        "HopfieldRetriever(corpus=MemoryCorpus(passages=0), encoder=SentenceTransformerEncoder('some/model', dtype='int8'), "
        "model='untrained', k=5)"
    )
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, k=2, filter={"year": 2016}, path=tmp_path / "i")
    shown = repr(retriever)
    assert shown.startswith(f"HopfieldRetriever(corpus=Index({str(tmp_path / 'i')!r}, passages=3), encoder=")
    assert shown.endswith("k=2, filter={'year': 2016})")
    assert "beta" not in shown
    assert str(retriever).startswith("corpus=Index(")
    many = HopfieldRetriever.from_texts([f"Text {n}." for n in range(500)], encoder=encoder)
    assert "passages=500" in repr(many)
    assert len(repr(many)) < 300
    assert "VectorStoreCorpus(InMemoryVectorStore)" in repr(HopfieldRetriever.from_vectorstore(in_memory()))
    # An index that is lost meanwhile is one all the same.
    (tmp_path / "i" / "index.sqlite").unlink()
    assert repr(retriever) == shown
