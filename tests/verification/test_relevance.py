import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.verification.references import References, content_items
from langgraph_convcoa.verification.relevance import CONTEXT_SHARE, FLOOR, is_of_kind, relevances


def of(texts, question, guess=""):
    forms = list(dict.fromkeys(item.form for item in content_items(question)))
    return relevances(References.of(texts), forms, {item.form for item in content_items(guess)})


@pytest.mark.parametrize(
    ("question", "guess", "fits"),
    [
        ("When was it built?", "in 1982", True),
        ("When was it built?", "in May", True),
        ("When was it built?", "by engineers", False),
        ("How many layers has it?", "twelve", True),
        ("How many layers has it?", "Paris", False),
        ("In what year did it open?", "the harbour", False),
        ("Who built it?", "Ada Lovelace", True),
        ("Who built it?", "1843", False),
        ("Who built it?", "engineers", False),
        ("Who built it?", "東京", True),
        ("Why was it built?", "to compute", True),
    ],
)
def test_kind_of_answer(question, guess, fits):
    assert is_of_kind(question, guess) is fits


def test_the_sentence_with_the_question_words_is_most_relevant():
    found = of(["The bridge opened in 1894. Trains crossed rivers elsewhere."], "When did the bridge open?")
    assert found[0] == 1.0
    assert found[0] > found[1] >= FLOOR


def test_a_near_word_counts_more_than_a_far_one():
    near, far = of(
        ["The bridge opened 1894 grandly.", "The bridge, long planned, debated, paid by merchants, opened 1894."],
        "bridge",
        "1894",
    )
    assert near > far


def test_the_sentence_before_and_the_title_count_a_little():
    alone = of(["It opened in 1894."], "When did Tower Bridge open?")
    titled = of([Document("It opened in 1894.", metadata={"title": "Tower Bridge"})], "When did Tower Bridge open?")
    before = of(["This is Tower Bridge. It opened in 1894."], "When did Tower Bridge open?")
    share = (1 + 2 * CONTEXT_SHARE) / 3
    assert titled[0] == pytest.approx(FLOOR + (1 - FLOOR) * (share / 2 + 1 / 2))
    assert titled[0] > alone[0]
    assert before[1] > FLOOR + (1 - FLOOR) * (1 / 3)


def test_no_word_in_common_leaves_the_floor():
    assert np.array_equal(of(["Bread is baked.", "Milk."], "When did the bridge open?"), [FLOOR, FLOOR])


def test_a_question_without_words_says_nothing():
    assert np.array_equal(of(["Bread is baked."], "??"), [1.0])
