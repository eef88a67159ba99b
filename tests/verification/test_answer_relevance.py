import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.text.questions import KINDS
from langgraph_convcoa.verification import References, conv_mrfs
from langgraph_convcoa.verification.references import segments
from langgraph_convcoa.verification.relevance import RELEVANCE_WEIGHTS, Guess, answer_relevance, places_of, relevance_of
from langgraph_convcoa.verification.support import claim_parts

PASSAGE = (
    "In 1843 Ada Lovelace wrote the first program for the Analytical Engine. Charles Babbage designed the engine in 1837. "
    "It was never finished, because the money ran out. The Science Museum built a part of it in 1991."
)


def features(guess, question, history=(), evidence=PASSAGE):
    references = References.of([evidence], history)
    claims = segments(guess)
    parsed = Guess.of(guess, claims, question)
    relevances = [relevance_of(text, parsed.asked, parsed.told) for text in references.references]
    parts = [claim_parts(claim, references) for claim in claims]
    return [place.features for place in places_of(parsed, parts, references, relevances)]


def score(guess, question, history=()):
    return conv_mrfs(guess, [PASSAGE], question=question, history=history).score


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("Who wrote the first program?", "Ada Lovelace", "Charles Babbage"),
        ("Who designed the engine?", "Charles Babbage", "Ada Lovelace"),
        ("Who designed the engine?", "Charles Babbage", "1837"),
        ("When did Ada Lovelace write the program?", "1843", "1991"),
        ("When did the Science Museum build a part?", "in 1991", "in 1843"),
        ("Why was the engine never finished?", "because the money ran out", "1837"),
        ("Who built a part of it?", "The Science Museum", "the money ran out"),
    ],
)
def test_the_right_answer_stands_above_another_of_the_passage(question, right, wrong):
    assert score(right, question) > score(wrong, question)


def test_a_whole_sentence_is_judged_as_its_answer_is():
    question = "When did Ada Lovelace write the first program?"
    assert score("Ada Lovelace wrote the first program in 1843.", question) > 0.61
    assert score("Ada Lovelace wrote the first program in 1991.", question) < 0.61


def test_the_answer_to_an_earlier_question_is_not_the_answer_to_another():
    question, history = "Who designed the engine?", [("When was the first program written?", "Charles Babbage")]
    assert features("Charles Babbage", question, history)[0]["repeated"] == 1.0
    assert score("Charles Babbage", question, history) < score("Charles Babbage", question)


@pytest.mark.parametrize("earlier", ["Who designed the engine?", "Who designed it?", "Who?"])
def test_it_is_where_the_question_is_the_same_or_names_nothing(earlier):
    found = features("Charles Babbage", "Who designed the engine?", [(earlier, "Charles Babbage")])
    assert found[0]["repeated"] == 0.0


def test_a_long_earlier_answer_may_hold_the_guess():
    history = [("What is the engine?", "The Analytical Engine was a machine that Charles Babbage never finished.")]
    assert features("Charles Babbage", "Who designed the engine?", history)[0]["repeated"] == 0.0


def test_the_sentence_after_the_last_answer_follows():
    history = [("Who wrote the first program?", "Ada Lovelace wrote the first program")]
    near, _ = features("Charles Babbage", "Who designed it?", history)
    far, _ = features("The Science Museum", "Who built a part of it?", history)
    assert near["following"] == pytest.approx(math.exp(-1 / 3))
    assert far["following"] == pytest.approx(math.exp(-1))
    assert features("Charles Babbage", "Who designed it?")[0]["following"] == 0.0


def test_a_guess_is_nearer_to_the_words_beside_it():
    evidence = "The bridge opened 1894 grandly. The bridge, long planned, debated, paid by merchants, opened 1895."
    (near,), (far,) = (features(g, "When did the bridge open?", evidence=evidence) for g in ("1894", "1895"))
    assert near["near"] > far["near"]
    assert near["share"] == far["share"]


def test_a_date_beside_none_of_the_question_loses():
    references = References.of([PASSAGE])
    guess = Guess.of("1991", segments("1991"), "When was the first program written?")
    relevances = [relevance_of(text, guess.asked, guess.told) for text in references.references]
    parts = [claim_parts(claim, references) for claim in segments("1991")]
    (place,) = places_of(guess, parts, references, relevances)
    assert 0.7 <= place.factor < 1


def test_every_reference_with_a_segment_has_a_place():
    assert len(features("1843", "When?", [("a?", ""), ("b?", "Something.")])) == 2


@given(st.dictionaries(st.sampled_from(sorted(RELEVANCE_WEIGHTS)), st.floats(0, 3)))
def test_a_probability_it_is(found):
    assert 0 < answer_relevance(found) < 1


def test_weights_are_of_features_that_exist():
    plain = {"bias", "better", "context", "following", "missed", "near", "nothing new", "of best", "repeated", "share"}
    for name in RELEVANCE_WEIGHTS.keys() - plain:
        kind, shape = name.split(": ")
        assert kind in KINDS
        assert shape in {"any", "bare name", "bare number", "length", "date", "name", "quantity"}
    assert plain <= RELEVANCE_WEIGHTS.keys()
    assert RELEVANCE_WEIGHTS["repeated"] < 0 < RELEVANCE_WEIGHTS["near"]
