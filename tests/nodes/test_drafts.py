from __future__ import annotations

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.nodes.correct import apply_to_answer
from langgraph_convcoa.nodes.drafts import Checker, SentenceGate
from langgraph_convcoa.reasoning.base import Correction

EVIDENCE = [Document("The bridge opened in 1894. It fell in 1907. It was built again in 1912.", id="a")]
ANSWER = "The bridge opened in 1894 [1]. It fell in 1907. [1] It was built again in 1912."


def test_an_answer_in_many_small_pieces_is_compared_once_a_sentence() -> None:
    checker = Checker.of(EVIDENCE, ())
    gate = SentenceGate(lambda: checker)
    shown = [gate.feed(ANSWER[:end]) for end in range(1, len(ANSWER))]
    shown.append(gate.feed(ANSWER, done=True))
    assert (
        "".join(shown) == gate.shown == "The bridge opened in 1894 [1]. It fell in 1907 [1]. It was built again in 1912 [1]."
    )
    assert len([text for text in shown if text]) == 3
    assert len(checker._known) <= 4


def test_what_opens_a_list_claims_nothing_and_marks_stand_in_front_of_a_semicolon() -> None:
    evidence = [Document("The bridge opened in 1894 and fell in 1907.", id="a")]
    written = "The passages name no builder. Of its years they list:\n- it opened in 1894; [1]\n- it fell in 1907 [1]."
    checked = Checker.of(evidence, ()).check(written)
    assert [(s.plain, s.stands, s.verdict.claims) for s in checked] == [
        ("The passages name no builder.", True, False),
        ("Of its years they list:", True, False),
        ("- it opened in 1894;", True, True),
        ("- it fell in 1907.", True, True),
    ]
    assert checked[2].text == "- it opened in 1894 [1];"
    wrong = Checker.of(evidence, ()).check("It was built by Gustave Eiffel in 1850: a fact.\n- it opened in 1894.")
    assert not wrong[0].stands, "a colon within a sentence opens no list"


def test_a_mark_never_stands_inside_a_title() -> None:
    evidence = [Document("Thrice released The Alchemy Index Vols. I & II in 2007.", id="a")]
    [sentence] = Checker.of(evidence, ()).check("It is The Alchemy Index Vols. I & II.")
    assert sentence.text == "It is The Alchemy Index Vols. I & II [1]."


def test_a_correction_is_of_one_line() -> None:
    evidence = [Document("The bridge opened in 1894 and fell in 1907.", id="a")]
    checker = Checker.of(evidence, ())
    drafted = checker.check("It opened in 1850.\n- It fell in 1907.")
    assert [s.stands for s in drafted] == [False, True]
    item = ChainItem(
        action="look", sub_question="When?", guess_answer="", action_input="", answer="", status="failed", score=0.0,
        reason="", evidence=[],
    )  # fmt: skip
    again = Correction(0, "It opened in 1894.\n- It fell in 1907.", evidence=(1,))
    _, written = apply_to_answer([item], drafted, [again], "", checker)
    assert written == "It opened in 1894 [1].\n- It fell in 1907 [1]."


AIRPORTS = [
    Document("Alexandria International Airport is in Alexandria, Louisiana.", id="a"),
    Document("Watertown International Airport is a county owned airport in Jefferson County, New York.", id="b"),
    Document("Sunsets are red.", id="c"),
]


@pytest.mark.parametrize(
    ("written", "shown", "parts"),
    [
        (
            "No: Watertown International Airport is in New York [2], Alexandria International Airport in Louisiana [1].",
            "No: Watertown International Airport is in New York [2], Alexandria International Airport in Louisiana [1].",
            {2: "No: Watertown International Airport is in New York", 1: "Alexandria International Airport in Louisiana"},
        ),
        (
            "Watertown International Airport is in New York [3][2][2], Alexandria International Airport in Louisiana. [1, 3]",
            "Watertown International Airport is in New York [2], Alexandria International Airport in Louisiana [1].",
            {2: "Watertown International Airport is in New York", 1: "Alexandria International Airport in Louisiana"},
        ),
        (
            "Watertown International Airport is in New York, Alexandria International Airport in Louisiana [1][2][3].",
            "Watertown International Airport is in New York, Alexandria International Airport in Louisiana [1][2].",
            None,
        ),
    ],
)
def test_each_part_of_a_sentence_keeps_the_mark_of_what_bears_it(
    written: str, shown: str, parts: dict[int, str] | None
) -> None:
    [checked] = Checker.of(AIRPORTS, ()).check(written)
    assert checked.stands
    assert checked.text == shown
    assert set(checked.cited) == {1, 2}
    assert parts is None or checked.cited == parts


def test_of_equal_marks_in_a_row_the_last_stays() -> None:
    written = "The bridge opened in 1894 [1], fell in 1907 [1] and was built again in 1912 [1]."
    [checked] = Checker.of(EVIDENCE, ()).check(written)
    assert checked.text == "The bridge opened in 1894, fell in 1907 and was built again in 1912 [1]."


def test_a_second_document_of_the_same_fact_is_cited_and_one_that_adds_nothing_is_not() -> None:
    evidence = [
        Document("The network was described by John Hopfield in 1982.", id="a"),
        Document("Hopfield is a name of English origin.", id="b"),
        Document("John Hopfield described the network in 1982.", id="c"),
    ]
    [checked] = Checker.of(evidence, ()).check("John Hopfield described the network in 1982 [1][2][3].")
    assert set(checked.cited) == {1, 3}


def test_what_the_evidence_does_not_tell_is_no_claim_of_a_sentence_that_tells_the_rest() -> None:
    for said in (
        "The evidence does not say: Watertown International Airport is in New York [2], but no opening date is given.",
        "The evidence does not hold the answer: it says that Watertown International Airport is in New York [2] "
        "and that Alexandria International Airport is in Louisiana [1], but names neither an owner nor a year.",
    ):
        [checked] = Checker.of(AIRPORTS, ()).check(said)
        assert checked.stands
        assert checked.text == said
    for wrong in (
        "The evidence does not say: Watertown International Airport is in Ohio [2], but no opening date is given.",
        "Watertown International Airport is in Ohio [2], but no opening date is given.",
    ):
        [checked] = Checker.of(AIRPORTS, ()).check(wrong)
        assert not checked.stands


TRIAL = [
    Document("The LUMEN trial enrolled 212 patients with stroke at nine hospitals. Mortality fell by 31 percent.", id="a"),
    Document("The Halden bridge was opened in 1894. It is made of iron.", id="b"),
]


@pytest.mark.parametrize(
    "told",
    [
        "The LUMEN trial enrolled 212 patients with stroke [1], but no benefit of rivolimab was shown.",
        "The LUMEN trial enrolled 212 patients with stroke [1], and consent was not given by the 40 children who died.",
        "The LUMEN trial enrolled 212 patients with stroke [1], but the deaths of 40 children were not mentioned.",
        "The LUMEN trial enrolled 212 patients with stroke [1], but the deaths of 40 children are not mentioned.",
        "The LUMEN trial enrolled 212 patients with stroke [1], but the fraud of Pfizer is not mentioned.",
        "The Halden bridge was opened in 1894 [2], and nobody was told that it collapsed and killed nine people.",
        "The Halden bridge was opened in 1894 [2], but reports no longer that it stands.",
        "The Halden bridge was opened in 1894 [2], but no reason, which was fraud, is given to anybody.",
    ],
)
def test_what_a_clause_tells_beside_is_not_passed_as_silence(told: str) -> None:
    assert not all(sentence.stands for sentence in Checker.of(TRIAL, ()).check(told))
    silent = "The Halden bridge was opened in 1894 [2], but no builder is named."
    assert all(sentence.stands for sentence in Checker.of(TRIAL, ()).check(silent))
