from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.verification import support_sentences
from langgraph_convcoa.verification.mrfs import THRESHOLD

EVIDENCE = [
    Document("The sparse network was proposed in 2023. It retrieves patterns in one step."),
    Document("Energy decreases with every update. The fixed points are the stored patterns."),
]
ANSWER = "The sparse network was proposed in 2023 [1].\n- Energy decreases with every update. Kangaroos live in Australia."


def test_each_sentence_with_its_evidence():
    found = support_sentences(ANSWER, EVIDENCE)
    assert [s.reference for s in found] == [0, 1, None]
    assert [s.score > THRESHOLD for s in found] == [True, True, False]
    assert [s.quote for s in found] == ["The sparse network was proposed in 2023.", "Energy decreases with every update.", ""]
    assert [ANSWER[s.start : s.end] for s in found] == [s.text for s in found]


def test_a_wrong_number_lowers_a_sentence():
    right, wrong = support_sentences("It was proposed in 2023. It was proposed in 2016.", EVIDENCE)
    assert right.score > THRESHOLD >= wrong.score


def test_a_sentence_may_draw_on_two_references():
    both = support_sentences("The sparse network retrieves the stored patterns.", EVIDENCE)[0].score
    alone = support_sentences("The sparse network retrieves the stored patterns.", EVIDENCE[:1])[0].score
    assert both > alone


def test_words_together_count_more_than_apart():
    evidence = ["Red cars stop. Blue boats sail."]
    together, apart = support_sentences("Red cars stop. Blue cars stop.", evidence)
    assert together.score == 1.0
    assert apart.score < 1.0


def test_nothing_to_say():
    assert support_sentences("", EVIDENCE) == []
    assert support_sentences("🎉 ...", EVIDENCE) == []
    assert [s.score for s in support_sentences("A claim.", [])] == [0.0]


@settings(deadline=None)
@given(st.text(max_size=120), st.lists(st.text(max_size=60), max_size=3))
def test_any_text_gives_sentences_in_place(answer, evidence):
    end = 0
    for found in support_sentences(answer, evidence):
        assert answer[found.start : found.end] == found.text
        assert found.start >= end
        assert 0 <= found.score <= 1
        assert (found.reference is None) == (found.score == 0)
        end = found.end
