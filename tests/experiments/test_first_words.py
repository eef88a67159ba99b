"""First words of turns on a simulated clock, over a small corpus."""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from experiments.first_words.__main__ import measure
from langgraph_convcoa import HopfieldRetriever
from langgraph_convcoa.datasets.queries import Dataset, Query

OSLO = "Oslo is the capital of Norway. It was founded around the year 1000."


async def test_in_a_conversation_our_first_sentence_comes_before_the_second_call_of_rag() -> None:
    corpus = (Document(OSLO, id="oslo"), Document("Bern is the capital of Switzerland.", id="bern"))
    first, full = "Which capital does Norway have?", "When was Oslo, the capital of Norway, founded?"
    queries = (
        Query("1", first, rewrite=first, answer=OSLO),
        Query("2", "When was it founded?", history=((first, "Oslo."),), rewrite=full, answer=OSLO),
    )
    retriever = HopfieldRetriever.from_documents(corpus, encoder=DeterministicFakeEmbedding(size=16))
    alone, later = await measure(Dataset("small", queries, corpus), retriever, 2)
    assert (alone[:2], later[:2]) == ((False, 1), (True, 1))
    assert 0.5 < later[2] == alone[2] < later[3] < 2
