"""First words of turns on a simulated clock, over a small corpus."""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from experiments.first_words.__main__ import measure
from langgraph_convcoa import HopfieldRetriever
from langgraph_convcoa.datasets.queries import Dataset, Query

CORPUS = (
    Document("Oslo is the capital of Norway. It was founded around the year 1000.", id="oslo"),
    Document("Bern is the capital of Switzerland.", id="bern"),
)
QUERIES = (
    Query("1", "Which capital does Norway have?", answer="Oslo is the capital of Norway."),
    Query(
        "2",
        "When was it founded?",
        history=(("Which capital does Norway have?", "Oslo."),),
        rewrite="When was Oslo, the capital of Norway, founded?",
        answer="It was founded around the year 1000. Oslo is the capital of Norway.",
    ),
)


async def test_in_a_conversation_our_first_sentence_comes_before_the_second_call_of_rag() -> None:
    retriever = HopfieldRetriever.from_documents(CORPUS, encoder=DeterministicFakeEmbedding(size=16))
    table = await measure(Dataset("small", QUERIES, CORPUS), retriever, 2)
    (later, *counts), (every, *_) = table.rows
    assert [later, every, *counts[:2], counts[4]] == ["with history", "all", "1", "1", "1"]
    ours, rag = (float(seconds) for seconds in counts[2:4])
    assert 0.6 < ours < rag < 2
