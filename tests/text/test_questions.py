import pytest

from langgraph_convcoa.text.questions import KINDS, question_kind
from langgraph_convcoa.text.words import content_items
from langgraph_convcoa.verification.relevance import guess_shape


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When was it built?", "time"),
        ("In what year did it open?", "time"),
        ("How many layers has it?", "quantity"),
        ("What percentage of it is water?", "quantity"),
        ("Who built it?", "person"),
        ("Which president opened it?", "person"),
        ("Where does it stand?", "place"),
        ("What country is it in?", "place"),
        ("Why was it built?", "reason"),
        ("What was the cause of the fire?", "reason"),
        ("What album did they release?", "name"),
        ("How was it built?", "way"),
        ("What does it carry?", "thing"),
        ("Did anything else happen?", "more"),
        ("Was it built in 1894?", "other"),
        ("日本の首都はどこですか", "other"),
        ("", "other"),
    ],
)
def test_kinds(question, kind):
    assert question_kind(question) == kind
    assert kind in KINDS


def shape(kind, guess):
    return guess_shape(kind, guess, content_items(guess))


def test_what_is_asked_for_is_looked_for():
    assert shape("time", "in May")["date"] == 1.0
    assert shape("time", "by engineers")["date"] == 0.0
    assert shape("quantity", "twelve")["quantity"] == 1.0
    assert shape("person", "by Ada Lovelace")["name"] == 1.0
    assert "date" not in shape("thing", "in 1982")


def test_a_bare_number_or_name_is_told_from_a_sentence_that_has_one():
    assert shape("thing", "1982")["bare number"] == 1.0
    assert shape("thing", "Ada Lovelace")["bare name"] == 1.0
    sentence = shape("thing", "an engine that Ada Lovelace saw in 1982")
    assert sentence["bare number"] == sentence["bare name"] == 0.0


def test_length_is_bounded():
    assert shape("thing", "word " * 500)["length"] == shape("thing", "word " * 8)["length"]
    assert shape("thing", "")["length"] == 0.0
