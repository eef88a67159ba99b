"""What a question names must stand in the passage that answers it."""

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.reasoning.extractive.coverage import NOTHING, cover, group_terms
from langgraph_convcoa.text.terms import find_terms

OSLO = Document("The city was founded in 1040 by Harald Hardrada.", metadata={"title": "Oslo"})
BERGEN = Document("Bergen lies in the west. J. C. Dahl was born there.", metadata={"title": "Bergen"})


@pytest.mark.parametrize(
    ("question", "shares"),
    [
        ("When was Oslo founded?", (1.0, 0.0)),
        ("When was Oslo's town hall founded?", (1.0, 0.0)),
        ("Where was Johan Dahl born?", (0.0, 1.0)),
        ("Which town is older, Oslo or Bergen?", (0.5, 0.5)),
        ("Who founded the city?", (1.0, 1.0)),
        ("Who founded the city in 1040?", (1.0, 0.0)),
    ],
)
def test_the_share_of_what_is_named(question: str, shares: tuple[float, ...]) -> None:
    found = cover(question, [OSLO, BERGEN])
    assert (found.shares, found.missing) == (shares, "")


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("Who founded Hopfax?", "Hopfax"),
        ("who founded hopfax?", "hopfax"),
        ("Who founded Oslo in 1041?", "1041"),
        ("Was Harald Zarbagno born there?", "Harald Zarbagno"),
        ("Was Zoltan Hardrada born there?", "Zoltan Hardrada"),
        ("Which town is called “the tiger”?", "tiger"),
    ],
)
def test_what_stands_nowhere_is_told(question: str, missing: str) -> None:
    found = cover(question, [OSLO, BERGEN])
    assert found.missing == f"no passage holds “{missing}”"
    assert not any(map(found.may_answer, range(2)))


def test_a_passage_with_less_than_half_gives_way_to_one_with_more() -> None:
    both = Document("Oslo is older than Bergen and Trondheim.")
    found = cover("Is Oslo older than Bergen and Trondheim?", [OSLO, both])
    assert [found.may_answer(n) for n in range(2)] == [False, True]


def test_what_an_earlier_answer_says_needs_no_passage() -> None:
    history = [("Who painted?", "It was Thomas Fearnley [1].")]
    assert not cover("Was Fearnley born in Bergen?", [BERGEN], history).missing
    assert cover("Was Fearnley born in Bergen?", [BERGEN], [("Who?", f"{NOTHING} Not Fearnley.")]).missing


def test_a_follow_up_is_about_the_subject_of_the_conversation() -> None:
    history = [("Where is Oslo?", "In Norway [1]."), ("How large is it?", "Large [1].")]
    assert cover("When was it founded?", [BERGEN, OSLO], history, leans=True).shares == (0.0, 1.0)
    # Where no passage names it, the retrieval decides.
    assert cover("When was it founded?", [BERGEN], history, leans=True).shares == (1.0,)


def test_no_evidence_has_no_share() -> None:
    assert cover("Who founded the city?", []).shares == ()


def test_the_words_of_a_name_are_one_group() -> None:
    groups = group_terms(find_terms("Did Ada Lovelace and Charles Babbage read “The Sketch of it” in 1843?"))
    assert [group.text for group in groups] == ["Ada Lovelace", "Charles Babbage", "Sketch", "1843"]
