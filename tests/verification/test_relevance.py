import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.text.words import content_items
from langgraph_convcoa.verification.references import References
from langgraph_convcoa.verification.relevance import CONTEXT_SHARE, FLOOR, relevance_of


def of(text, question, guess=""):
    forms = list(dict.fromkeys(item.form for item in content_items(question)))
    return relevance_of(References.of([text]).references[0], forms, {item.form for item in content_items(guess)})


def test_the_sentence_with_the_question_words_is_most_relevant():
    found = of("The bridge opened in 1894. Trains crossed rivers elsewhere.", "When did the bridge open?")
    assert found.shares.tolist() == pytest.approx([1.0, 0.0])
    assert found.gates[0] > found.gates[1] > 0


def test_a_rare_word_counts_more_than_one_that_every_sentence_has():
    text = "The bridge opened in 1894. The bridge was painted. The bridge is blue."
    found = of(text, "When did the bridge open?")
    assert found.rarity["open"] > found.rarity["bridg"]
    assert sum(found.rarity.values()) == pytest.approx(1)


def test_a_word_that_the_text_lacks_lowers_every_share():
    text = "The bridge opened in 1894. It is blue."
    assert of(text, "When did the bridge open for traffic?").shares[0] < 1


def test_the_sentence_before_and_the_title_count_a_little():
    title = Document("It opened in 1894.", metadata={"title": "Tower Bridge"})
    for found in (of(title, "When did Tower Bridge open?"), of("It opened in 1894.", "When did Tower Bridge open?")):
        assert 0 < found.shares[0] < 1
    assert of(title, "When did Tower Bridge open?").context[0] > 0
    before = of("This is Tower Bridge. It opened in 1894.", "When did Tower Bridge open?")
    assert before.context[1] == pytest.approx(1 - before.shares[1])
    assert before.gates[1] == pytest.approx(
        FLOOR + (1 - FLOOR) * (before.shares[1] + CONTEXT_SHARE * before.context[1]) / (1 + CONTEXT_SHARE)
    )


def test_a_sentence_that_holds_less_of_the_guess_counts_less():
    found = of("It opened in 1894. It opened in May 1894.", "When did it open?", "May 1894")
    assert found.gates[0] < found.gates[1]


def test_a_question_without_words_is_met_everywhere():
    found = relevance_of(References.of(["Bread is baked. Milk."]).references[0], [], set())
    assert np.array_equal(found.shares, [1.0, 1.0])
    assert found.rarity == {}


def test_no_word_in_common_leaves_little():
    found = of("Bread is baked. Milk.", "When did the bridge open?", "bread")
    assert np.array_equal(found.shares, [0.0, 0.0])
    assert found.gates.max() == pytest.approx(FLOOR)
