"""Terms that evidence must hold: what counts as one, and which variants of it are allowed."""

import pytest

from langgraph_convcoa.text.terms import Held, find_terms


def texts(question: str) -> list[str]:
    return [term.text for term in find_terms(question)]


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("Who introduced ColBERT?", ["ColBERT"]), ("who introduced colbert?", ["colbert"]),
        ("WHO INTRODUCED COLBERT?", ["COLBERT"]), ("Who Introduced The Great Colbert Model?", ["Colbert"]),
        ("Hopfax was founded when?", ["Hopfax"]), ("Networks are trained how?", []),
        ("Marie Curie won what?", ["Marie", "Curie"]), ("I like it. Networks are what?", []),
        ("How many of the 50 states voted in 1990?", ["50", "1990"]),
        ("What does “energy landscape” mean?", ["energy", "landscape"]),
        ("What's the name of the town that wasn't built?", []), ("who is þorbjörg of plastem?", ["þorbjörg", "plastem"]),
        ("What attributes were unbound and reshaped?", []), ("Wer hat das Netz erfunden und warum?", []),
        ("谁提出了网络？", []), ("", []), ("?!", []),
    ],
)  # fmt: skip
def test_the_terms_of_a_question(question: str, terms: list[str]) -> None:
    assert texts(question) == terms


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Who is Beyonce?", "Beyoncé sang."), ("Who led the Canadians?", "Canada has a queen."),
        ("Who were Hopfield's students?", "HOPFIELD taught."), ("Who is Hopfeild?", "Hopfield taught."),
        ("What is a Spiderman?", "Spider-Man swings."), ("What is the UN?", "The United Nations met."),
        ("Who ruled the city in 1990?", "In the 1990s it had a mayor."), ("Who sold 5,000 of Oslo's cars?", "Oslo sold 5000."),
    ],
)  # fmt: skip
def test_a_variant_is_held(question: str, text: str) -> None:
    held = Held([text])
    assert find_terms(question)
    assert all(held.holds(term) for term in find_terms(question))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Who is Hopfax?", "Hopfield taught."), ("What is sparsemax?", "A sparse map."),
        ("Was it in 1990?", "It was in 1991 and cost 19900."), ("What is Marl?", "Mark and Karl and marble."),
        ("Who is Oslin?", "Oslo is a town."),
    ],
)  # fmt: skip
def test_another_word_is_no_variant(question: str, text: str) -> None:
    held = Held([text])
    assert not any(held.holds(term) for term in find_terms(question))


@pytest.mark.parametrize("unit", ["Hopfax ", "x", "“a” ", "1990 ", "字", "a-b’s ", "\u0301 "])
def test_long_questions_are_read(unit: str) -> None:
    assert len(find_terms(unit * (100_000 // len(unit)))) <= 2_000
