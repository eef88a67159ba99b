import pytest
from langchain_core.documents import Document

from langgraph_convcoa.text.words import content_items
from langgraph_convcoa.verification.references import References, segments


def forms(text):
    return [item.form for item in content_items(text)]


def test_segments_lie_where_they_say():
    text = "Title\n\nDr. Hopfield wrote it. 🎉 It has parts!\r\n- An item\n***\n東京は首都です。人口は多い。"
    found = segments(text)
    assert [text[s.start : s.end] for s in found] == [s.text for s in found]
    assert [s.text for s in found][:2] == ["Title", "Dr. Hopfield wrote it."]
    assert found[-1].text == "人口は多い。"


@pytest.mark.parametrize("text", ["It was stored [3].", "1. It was stored", "- It was stored", "It was stored [1, 2]"])
def test_citation_and_list_marks_are_no_numbers(text):
    assert forms(text) == ["store"]


def test_numbers_are_compared_in_one_form():
    assert forms("Three of 1,200 networks") == forms("3 of 1200 networks")


def test_names_and_numbers_weigh_more():
    weights = {item.form: item.weight for item in content_items("Networks were stored by Ada Lovelace and the WHO in 1843.")}
    assert weights == {"network": 1, "store": 1, "ada": 2, "lovelac": 2, "who": 2, "1843": 2}


def test_a_capital_that_opens_a_sentence_is_a_name_only_beside_another():
    assert [i.is_name for i in content_items("Lovelace wrote it")] == [False, False]
    assert [i.is_name for i in content_items("Ada Lovelace wrote it")] == [True, True, False]
    assert not any(i.is_name for i in content_items("ALL OF THIS IS LOUD"))


def test_yes_is_no_evidence_word():
    assert forms("Yes, it stores patterns") == ["store", "pattern"]
    assert forms("Yes") == ["yes"]


@pytest.mark.parametrize(
    ("text", "negated"), [("It is not so.", True), ("It isn't so.", True), ("It isn’t so.", True), ("A knot is so.", False)]
)
def test_negation(text, negated):
    assert segments(text)[0].negated is negated


def test_history_counts_its_answers_and_not_its_questions():
    references = References.of(
        [Document("Evidence text.", metadata={"title": "Hopfield"})], [("Born in 1933?", "He was a physicist.")]
    )
    assert "1933" not in references.where
    assert references.owners == (0, 1)
    assert references.references[0].about == {"hopfield"}
    assert "1933" in references.references[1].about


def test_prepared_references_are_reused_and_extended():
    prepared = References.of(["One text."])
    assert References.of(prepared) is prepared
    assert References.of(prepared, [("q", "Another.")]).owners == (0, 1)
