from langchain_core.documents import Document

from experiments.peers.pruning import PrunedHistory
from langgraph_convcoa.datasets.queries import Query
from tests.retrieval.conftest import BagOfWords

POOL = [Document(f"A network of type{n} is a network that stores.", id=str(n)) for n in range(8)]


def texts(query: Query, kept: int) -> str:
    (text,) = PrunedHistory(POOL, kept).texts(BagOfWords(), [query])
    return text


def test_rare_words_of_turns_like_the_question_are_kept():
    turns = (("Which network stores?", "Type3 stores."), ("Do apples grow?", "Type5 and Type6, as apples do."))
    asked = Query("1", "What network is it?", turns)
    # The second turn shares no word with the question, no passage has apples, and every passage stores.
    assert texts(asked, 1) == "What network is it? Type3"
    assert texts(asked, 9) == "What network is it? stores Type3"


def test_words_of_the_latest_turn_come_first():
    asked = Query("1", "What network is it?", (("A type1 network?", "No."), ("A type2 network?", "No.")))
    assert texts(asked, 2) == "What network is it? type2 type1"


def test_nothing_to_keep_leaves_the_question():
    assert texts(Query("1", "What network is it?"), 5) == "What network is it?"
    assert texts(Query("1", "What network is it?", (("What network?", ""), ("", ""))), 5) == "What network is it?"
