import pytest
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.bench.encoder_training import train_pairs
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from tests.retrieval.tiny_bert import save_tiny_bert

CORPUS = ("what is a network", "the river of the book", "hopfield stores a memory", "who was in it")


def test_the_encoder_learns_and_is_saved_with_its_attention(tmp_path):
    """The passage that the untrained encoder ranks last is taught to be the answer."""
    checkpoint = str(save_tiny_bert(tmp_path / "bert"))

    def ranked(encoder):
        similarity = encoder.encode_queries(["memory memory"]) @ encoder.encode_passages(CORPUS).T
        return similarity[0].argsort().tolist()

    last = ranked(SentenceTransformerEncoder(checkpoint, dtype="float32", attention="softmax1"))[0]
    questions = [Query("1", "memory memory", gold=(f"p{last}",))]
    questions += [Query(str(n), text, gold=(f"p{n}",)) for n, text in enumerate(CORPUS) if n != last]
    data = Dataset("small", tuple(questions), tuple(Document(text, id=f"p{n}") for n, text in enumerate(CORPUS)))
    train_pairs(checkpoint, tmp_path / "trained", data, attention="softmax1", steps=40, learning_rate=5e-3)
    trained = SentenceTransformerEncoder(str(tmp_path / "trained"), dtype="float32")
    assert ranked(trained)[-1] == last
    assert "softmax1" in trained.name


def test_questions_stand_behind_the_user_turn_before_them():
    corpus = (Document("text", id="p"),)
    queries = (
        Query("1", "and when?", history=(("who?", "she"), ("where?", "there")), gold=("p", "elsewhere")),
        Query("2", "why?", gold=("elsewhere",)),
    )
    assert [query.two_turns for query in Dataset("small", queries, corpus).answerable()] == ["where? and when?"]
    with pytest.raises(InputError, match="gold passage"):
        Dataset("small", queries[1:], corpus).answerable()
