import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.test_vectorstore import DOCUMENTS, TextStore, WordEmbeddings, in_memory


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
