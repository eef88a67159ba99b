import asyncio
import threading

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.query.conversation_state import Query, StateEncoder
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.vectorstore import VectorStoreCorpus
from tests.fake_encoder import WordEncoder

DOCUMENTS = [
    Document("Sparsemax was proposed by Martins in 2016. It is a projection.", id="sparsemax", metadata={"year": 2016}),
    Document("Dense passage retrieval was proposed by Karpukhin. It trains two encoders.", id="dpr", metadata={"year": 2020}),
    Document("Apples grow on trees. They ripen in autumn.", id="apples", metadata={"year": 2020}),
    Document("Pears are eaten raw or cooked.", id="pears", metadata={"year": 1999}),
]


class WordEmbeddings(Embeddings):
    """Counts of hashed words, of length four so that a state of length one would be told from one of the store's."""

    model = "words"

    def __init__(self):
        self.documents = []

    def embed_documents(self, texts):
        self.documents.extend(texts)
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        return (4 * WordEncoder().encode_queries([text])[0]).tolist()


class TextStore(VectorStore):
    """A store that is searched by text only; what it was asked is kept."""

    def __init__(self, documents=(), error=None):
        self.asked, self.documents, self.error, self.threads = [], list(documents), error, set()

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **kwargs):
        raise NotImplementedError

    def similarity_search(self, query, k=4, **kwargs):
        self.asked.append((query, k, kwargs))
        self.threads.add(threading.current_thread())
        if self.error:
            raise self.error
        return self.documents[:k]


def in_memory():
    store = InMemoryVectorStore(WordEmbeddings())
    store.add_documents(DOCUMENTS)
    return store


def fetch(stage, mode, question, history=(), *, k, history_weight=0.6, state=None):
    if state is None:
        states = StateEncoder(stage.encoder).states([question], [history], history_weight=history_weight, history_beta=1.0)
    else:
        states = state[None]
    weights = {"passage_weight": 1.0, "lexical_weight": 0.0, "lexical_history": 0.0, "history_weight": history_weight}
    asked = Query([question], [history], states, k, stage.encoder, beta=10.0, history_beta=1.0, **weights)
    return asyncio.run(stage.aview(asked)) if mode == "async" else stage.view(asked)


def ids(memory):
    return [passage.id for passage in memory.passages]


both = pytest.mark.parametrize("mode", ["sync", "async"])


@both
def test_candidates_come_with_all_their_windows(mode):
    stage = VectorStoreCorpus(in_memory(), candidates=2)
    memory = fetch(stage, mode, "Who proposed sparsemax?", k=1)
    assert ids(memory)[0] == "sparsemax"
    assert len(memory) == 2
    assert memory.passages[0].metadata == {"year": 2016}
    assert memory.patterns.d == 512
    assert len(fetch(stage, mode, "Whose map?", k=3)) == 3


@both
def test_the_conversation_is_in_the_vector_that_the_store_is_asked_with(mode):
    stage = VectorStoreCorpus(in_memory(), candidates=1)
    history = [("Where do apples grow?", "Apples grow on trees.")]
    assert ids(fetch(stage, mode, "And sparsemax?", k=1)) == ["sparsemax"]
    assert ids(fetch(stage, mode, "When do they ripen?", history, k=1, history_weight=5.0)) == ["apples"]
    assert ids(fetch(stage, mode, "Are they eaten raw?", [("Who proposed it?", "Karpukhin")], k=1)) == ["pears"]


def test_a_state_is_as_long_as_the_stores_vectors(monkeypatch):
    store = in_memory()
    seen = []
    monkeypatch.setattr(store, "similarity_search_by_vector", lambda vector, **kwargs: seen.append((vector, kwargs)) or [])
    stage = VectorStoreCorpus(store)
    fetch(stage, "sync", "sparsemax", [("apples", "trees")], k=1)
    assert np.linalg.norm(seen[0][0]) == pytest.approx(4.0, rel=1e-5)
    state = stage.encoder.encode_queries(["apples"])[0]
    fetch(stage, "sync", "sparsemax", k=40, state=state)
    np.testing.assert_allclose(seen[1][0], state * 4, rtol=1e-5)
    assert seen[1][1] == {"k": 40}


@both
def test_filters_reach_the_store(mode):
    stage = VectorStoreCorpus(in_memory(), search_kwargs={"filter": lambda document: document.metadata["year"] == 2020})
    assert set(ids(fetch(stage, mode, "sparsemax", k=2))) == {"dpr", "apples"}
    nothing = VectorStoreCorpus(in_memory(), search_kwargs={"filter": lambda _document: False})
    assert len(fetch(nothing, mode, "sparsemax", k=2)) == 0


@both
def test_a_store_without_search_by_vector_is_asked_by_text(mode, encoder):
    store = TextStore(DOCUMENTS)
    stage = VectorStoreCorpus(store, encoder, candidates=3, search_kwargs={"filter": 1})
    for _ in range(2):
        assert ids(fetch(stage, mode, "And it?", [("First?", "Yes."), ("Who wrote it?", "Ada.")], k=1)) == [
            "sparsemax",
            "dpr",
            "apples",
        ]
    assert store.asked == 2 * [("Who wrote it? And it?", 3, {"filter": 1})]
    assert (threading.main_thread() in store.threads) == (mode == "sync")


@both
def test_a_store_that_names_embeddings_but_refuses_vectors(mode):
    class Refusing(TextStore):
        embeddings = WordEmbeddings()

    store = Refusing(DOCUMENTS)
    assert len(fetch(VectorStoreCorpus(store), mode, "Whose map?", k=1)) == 4
    assert store.asked == [("Whose map?", 32, {})]


def test_another_encoder_ranks_what_the_stores_own_embeddings_found(encoder):
    stage = VectorStoreCorpus(in_memory(), encoder, candidates=1)
    state = encoder.encode_queries(["pears"])[0]
    memory = fetch(stage, "sync", "Who proposed sparsemax?", k=1, state=state)
    assert ids(memory) == ["sparsemax"]
    assert memory.patterns.d == encoder.dimension == stage.encoder.dimension


@pytest.mark.parametrize("kept", [True, False])
def test_windows_are_encoded_once(tmp_path, kept):
    store = in_memory()
    stage = VectorStoreCorpus(store, cache=PatternCache(tmp_path / "cache.sqlite") if kept else None)
    seen = store.embeddings.documents
    seen.clear()
    fetch(stage, "sync", "sparsemax", k=4)
    assert len(seen) == len(set(seen)) == 4
    fetch(stage, "sync", "apples", k=4)
    count = len(seen)
    again = VectorStoreCorpus(store, cache=PatternCache(tmp_path / "cache.sqlite")) if kept else stage
    fetch(again, "sync", "apples", k=4)
    assert len(seen) == count


@both
def test_what_a_store_may_return(mode, encoder):
    found = [Document("Same.", id="a"), Document("Same.", id="a"), Document(" "), Document("No id."), Document("No id.")]
    memory = fetch(VectorStoreCorpus(TextStore(found), encoder), mode, "Whose map?", k=1)
    assert [passage.page_content for passage in memory.passages] == ["Same.", "No id."]
    assert all(ids(memory))
    assert len(fetch(VectorStoreCorpus(TextStore([Document("")]), encoder), mode, "Whose map?", k=1)) == 0


@both
def test_a_long_document_is_searched_in_parts(mode, encoder):
    long = Document("\n\n".join(f"Part {n} of it has item{n} and other plain words in it." for n in range(30)), id="long")
    memory = fetch(VectorStoreCorpus(TextStore([long]), encoder), mode, "Whose map?", k=1)
    assert ids(memory)[0] == "long#1"
    assert len(memory) > 1


@both
def test_a_failing_store_is_one_line(mode, encoder):
    with pytest.raises(RetrievalError, match=r"vector store TextStore failed: OSError: gone\.$"):
        fetch(VectorStoreCorpus(TextStore(error=OSError("gone\nfar away")), encoder), mode, "Whose map?", k=1)


def test_what_is_no_store():
    with pytest.raises(InputError, match="must be a LangChain VectorStore, not list"):
        VectorStoreCorpus([])
    with pytest.raises(InputError, match="candidates"):
        VectorStoreCorpus(in_memory(), candidates=0)


@both
@pytest.mark.slow
# Of Chroma and what it imports.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("space", ["l2", "cosine"])
def test_chroma(mode, space):
    chromadb = pytest.importorskip("chromadb")
    chroma = pytest.importorskip("langchain_chroma")
    store = chroma.Chroma(
        collection_name=f"{mode}-{space}",
        embedding_function=WordEmbeddings(),
        client=chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False)),
        collection_configuration={"hnsw": {"space": space}},
    )
    store.add_documents(DOCUMENTS)
    stage = VectorStoreCorpus(store, candidates=1)
    assert ids(fetch(stage, mode, "Who proposed sparsemax?", k=1)) == ["sparsemax"]
    assert ids(fetch(stage, mode, "When do they ripen?", [("Where do apples grow?", "On trees.")], k=1)) == ["apples"]
    stage.search_kwargs = {"filter": {"year": 2020}}
    memory = fetch(stage, mode, "Who proposed it?", k=3)
    assert set(ids(memory)) == {"dpr", "apples"}
    assert memory.passages[0].metadata == {"year": 2020}
    stage.search_kwargs = {"filter": {"$no": 1}}
    with pytest.raises(RetrievalError, match="vector store Chroma failed"):
        fetch(stage, mode, "Whose map?", k=1)


def answers(documents):
    return [(document.id, document.metadata["score"], document.metadata["quote"]) for document in documents]


async def test_it_ranks_as_the_retriever_over_the_same_documents_does():
    retriever = HopfieldRetriever.from_vectorstore(in_memory(), k=3)
    plain = HopfieldRetriever.from_documents(DOCUMENTS, encoder=WordEmbeddings(), k=3, lexical_weight=0.0, graph=None)
    history = [("Where do apples grow?", "On trees.")]
    for question, turns in (("Who proposed sparsemax?", None), ("When do they ripen?", history)):
        # Equal scores come in the order of the store, so that only those of texts that share a word can be compared.
        hits = [(one.id, one.metadata["score"]) for one in plain.invoke(question, history=turns) if one.metadata["score"] > 0]
        expected = [(name, pytest.approx(score, rel=1e-4)) for name, score in hits]
        found = retriever.invoke(question, history=turns)
        assert [(document.id, document.metadata["score"]) for document in found][: len(hits)] == expected
        assert answers(await retriever.ainvoke(question, history=turns)) == answers(found)
    assert found[0].metadata["source"] == "apples"
    assert found[0].metadata["year"] == 2020


async def test_settings_hold(encoder):
    retriever = HopfieldRetriever.from_vectorstore(in_memory(), encoder=encoder, return_association=True)
    assert len(retriever.invoke("sparsemax", k=2)) == 2
    assert {"text", "start", "end", "weight"} == set(retriever.invoke("sparsemax")[0].metadata["association"][0])
    assert [d.id for d in retriever.model_copy(update={"filter": {"year": 1999}}).invoke("sparsemax")] == ["pears"]
    assert retriever.model_copy(update={"score_threshold": 9.0}).invoke("sparsemax") == []
    assert await HopfieldRetriever.from_vectorstore(TextStore(), encoder=encoder).ainvoke("sparsemax") == []
    for wrong in ({"beta": -1.0}, {"betta": 1.0}):
        with pytest.raises(InputError):
            HopfieldRetriever.from_vectorstore(in_memory(), **wrong)
    with pytest.raises(InputError, match="empty"):
        retriever.invoke(" ")


def test_batches_and_messages():
    retriever = HopfieldRetriever.from_vectorstore(in_memory(), k=1)
    found = retriever.search_batch(["Who proposed sparsemax?", "When do they ripen?"], [None, [("Apples?", "On trees.")]])
    assert [hits[0][0] for hits in found] == ["sparsemax", "apples"]
    with pytest.raises(InputError, match="1 histories"):
        retriever.search_batch(["sparsemax", "apples"], [None])
    messages = [HumanMessage("Where do apples grow?"), AIMessage("On trees.")]
    documents = retriever.history_aware().invoke({"input": "When do they ripen?", "chat_history": messages})
    assert documents[0].id == "apples"


def test_nothing_is_certified():
    retriever = HopfieldRetriever.from_vectorstore(in_memory(), k=1)
    assert retriever.invoke("Who proposed sparsemax?")[0].metadata["certified"] is False


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_store_whose_search_by_vector_is_not_implemented_is_searched_by_text(mode):
    class Wrapper(InMemoryVectorStore):
        def similarity_search_by_vector(self, embedding, k=4, **kwargs):
            raise NotImplementedError

        async def asimilarity_search_by_vector(self, embedding, k=4, **kwargs):
            raise NotImplementedError

    store = Wrapper(WordEmbeddings())
    store.add_documents(DOCUMENTS)
    expected = ids(fetch(VectorStoreCorpus(in_memory()), mode, DOCUMENTS[0].page_content, k=2))
    assert ids(fetch(VectorStoreCorpus(store), mode, DOCUMENTS[0].page_content, k=2)) == expected


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_store_that_is_searched_by_text_only_embeds_nothing_itself(mode, encoder):
    class Remote(TextStore):
        embeddings = WordEmbeddings()

    Remote.embeddings.embed_query = Remote.embeddings.embed_documents = lambda *_: pytest.fail("embedded")
    assert ids(fetch(VectorStoreCorpus(Remote(DOCUMENTS), encoder, candidates=2), mode, "Who?", k=1)) == ["sparsemax", "dpr"]
