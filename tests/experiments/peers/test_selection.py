import numpy as np

from experiments.peers.selection import helpful_turns, similar_turns
from langgraph_convcoa.datasets.queries import Query
from tests.retrieval.conftest import BagOfWords

TURNS = (
    ("Which maps are sparse?", "Sparsemax."),
    ("Do apples grow on trees?", "Yes."),
    ("Who proposed networks?", "Hopfield."),
)


def test_turns_that_are_like_the_question_are_kept_latest_first():
    asked = Query("1", "Who proposed sparse maps?", TURNS)
    assert similar_turns(BagOfWords(), [asked], 0.1) == [
        "Who proposed sparse maps? Who proposed networks? Hopfield. Which maps are sparse? Sparsemax."
    ]
    assert similar_turns(BagOfWords(), [asked], 0.99) == ["Who proposed sparse maps?"]


def test_no_history_or_an_empty_one_leaves_the_question():
    asked = [Query("1", "Why?"), Query("2", "Why?", (("", ""),)), Query("3", "How?", TURNS[:1])]
    assert similar_turns(BagOfWords(), asked, -1)[:2] == ["Why?", "Why?"]
    passages = BagOfWords().encode_passages(["Sparse maps.", "Why not?"])
    gold = [Query(query.id, query.question, query.history, ("a",)) for query in asked]
    assert helpful_turns(BagOfWords(), passages, ["a", "b"], gold)[:2] == ["Why?", "Why?"]


def test_the_oracle_keeps_the_turns_that_raise_the_gold_passage():
    texts = ["Sparsemax and maps are sparse.", "It was proposed.", "Apples grow on trees."]
    passages = BagOfWords().encode_passages(texts)
    asked = Query("1", "When was it proposed?", TURNS[:2], ("gold",))
    (text,) = helpful_turns(BagOfWords(), passages, ["gold", "other", "apples"], [asked])
    # Behind "It was proposed." by the question alone; the apples leave it there.
    assert text == "When was it proposed? Which maps are sparse? Sparsemax."
    assert np.argmax(passages @ BagOfWords().encode_queries([text])[0]) == 0
    first = Query("2", "Are maps sparse?", TURNS[:2], ("gold",))
    assert helpful_turns(BagOfWords(), passages, ["gold", "other", "apples"], [first]) == ["Are maps sparse?"]
