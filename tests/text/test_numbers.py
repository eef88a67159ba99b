import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.text.numbers import normalize


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("twenty-five percent", "25%"),
        ("two hundred and fifty people", "250 people"),
        ("1.5 million", "1,500,000"),
        ("$3bn", "$3,000,000,000"),
        ("the eighteenth century", "the 18th century"),
        ("Sept. 3rd", "September 3rd"),
        ("3 Feb", "3 February"),
        ("the U.S.", "the US"),
        ("9 a.m.", "9am"),
        ("5km", "5 kilometres"),
        ("the '90s", "the 1990's"),
        ("3.0", "3"),
        ("seven", "7"),
    ],
)
def test_the_same_number_has_one_form(one, other):
    def told(text):
        return [word.rstrip("s") for word in normalize(text).split()]

    assert told(one) == told(other)


@pytest.mark.parametrize(
    "pair", [("25", "26"), ("3.5", "35"), ("1990", "1990s"), ("3rd", "3"), ("million", "billion"), ("5%", "5")]
)
def test_another_number_has_another_form(pair):
    assert normalize(pair[0]) != normalize(pair[1])


def test_words_that_are_no_numbers_stay():
    text = "One may march on; a second later the thousandth hour began."
    assert normalize(text) == text


@given(st.text(max_size=100))
def test_any_text_has_a_form(text):
    assert isinstance(normalize(text), str)
