from __future__ import annotations

import pytest

from langgraph_convcoa.verification.premise import Evidence

HOTEL = "The Jade Hotel has 40 rooms. Breakfast costs 9 euros. Dogs stay for free. The sauna opens at noon."


def test_a_short_document_is_the_premise_as_a_whole_under_its_title():
    premise = Evidence([("Jade", HOTEL), ("", "Cats sleep all day.")]).premise("Breakfast costs 9 euros.")
    assert premise.text == f"Jade: {HOTEL}"
    assert premise.documents == (0,)


def test_a_claim_that_joins_two_documents_gets_both():
    evidence = Evidence([("", HOTEL), ("", "Ada Park owns the Jade Hotel since 1999."), ("", "Rain fell on the hills.")])
    premise = evidence.premise("Ada Park's hotel has 40 rooms.")
    assert set(premise.documents) == {0, 1}
    assert "40 rooms" in premise.text
    assert "1999" in premise.text


@pytest.mark.parametrize("words", [5, 20, 60])
def test_it_is_as_long_as_it_may_be_and_keeps_the_best_sentence(words):
    evidence = Evidence([("", " ".join(f"Room {n} has a bed and a view of lake {n}." for n in range(200)))])
    premise = evidence.premise("Room 77 has a view of lake 77.", words)
    assert "Room 77 has a bed" in premise.text
    assert len(premise.text.split()) <= max(words, 11)


def test_rows_of_a_table_are_pieces_of_their_own():
    table = "Item | Rate\nCar | 0.38 EUR\nBicycle | 0.05 EUR\n" + "\n".join(f"Thing {n} | {n} EUR" for n in range(90))
    assert "Bicycle | 0.05 EUR" in Evidence([("Rates", table)]).premise("The bicycle rate is 0.05 EUR.", 12).text


@pytest.mark.parametrize("claim", ["", "   ", "!!!", "word " * 10_000])
@pytest.mark.parametrize("text", ["", "One sentence.", "x" * 100_000])
def test_odd_claims_and_evidence_give_a_bounded_premise(claim, text):
    premise = Evidence([("", text)]).premise(claim)
    assert premise.text == text.strip() or len(premise.text.split()) <= 60


def test_without_evidence_the_premise_is_empty():
    assert Evidence([]).premise("It rained.").text == ""


def test_whole_sentences_are_held_word_for_word_and_parts_of_them_are_not():
    evidence = Evidence([("", ""), ("", "Enter the name, and click Save. It is not true that dogs are allowed.")])
    assert evidence.holder('Enter the name and click "Save".') == 1
    assert evidence.holder("Enter the name and click Save. It is not true that dogs are allowed.") == 1
    assert evidence.holder("Dogs are allowed.") is None
    assert evidence.holder("...") is None
    assert Evidence([]).holder("Dogs are allowed.") is None
