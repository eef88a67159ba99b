from __future__ import annotations

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.nodes.verify import apply_to_answer
from langgraph_convcoa.reasoning.base import Correction
from langgraph_convcoa.reasoning.streaming import SentenceGate
from langgraph_convcoa.verification.answer_check import Checker
from tests.fakes import WORDS, chain_item

EVIDENCE = [Document("The bridge opened in 1894. It fell in 1907. It was built again in 1912.", id="a")]
ANSWER = "The bridge opened in 1894 [1]. It fell in 1907. [1] It was built again in 1912."


def test_an_answer_in_many_small_pieces_is_compared_once_a_sentence() -> None:
    shown: list[str] = []
    gate = SentenceGate(Checker(EVIDENCE, (), WORDS), lambda text, _: shown.append(text))
    for end in range(1, len(ANSWER)):
        gate.feed(ANSWER[:end])
    gate.feed(ANSWER, done=True)
    assert (
        "".join(shown) == gate.shown == "The bridge opened in 1894 [1]. It fell in 1907 [1]. It was built again in 1912 [1]."
    )
    assert len(shown) == 3


def test_what_opens_a_list_claims_nothing_and_marks_stand_in_front_of_a_semicolon() -> None:
    evidence = [Document("The bridge opened in 1894 and fell in 1907.", id="a")]
    written = "The passages name no builder. Of its years they list:\n- it opened in 1894; [1]\n- it fell in 1907 [1]."
    checked = Checker(evidence, (), WORDS).check(written)
    assert [(s.plain, s.stands, s.claims) for s in checked] == [
        ("The passages name no builder.", True, False), ("Of its years they list:", True, False),
        ("- it opened in 1894;", True, True), ("- it fell in 1907.", True, True),
    ]  # fmt: skip
    assert checked[2].text == "- it opened in 1894 [1];"
    wrong = Checker(evidence, (), WORDS).check("It was built by Gustave Eiffel in 1850: a fact.\n- it opened in 1894.")
    assert not wrong[0].stands, "a colon within a sentence opens no list"


def test_a_mark_never_stands_inside_a_title() -> None:
    evidence = [Document("Thrice released The Alchemy Index Vols. I & II in 2007.", id="a")]
    [sentence] = Checker(evidence, (), WORDS).check("It is The Alchemy Index Vols. I & II.")
    assert sentence.text == "It is The Alchemy Index Vols. I & II [1]."


def test_a_correction_is_of_one_line() -> None:
    evidence = [Document("The bridge opened in 1894 and fell in 1907.", id="a")]
    checker = Checker(evidence, (), WORDS)
    drafted = checker.check("It opened in 1850.\n- It fell in 1907.")
    assert [s.stands for s in drafted] == [False, True]
    again = Correction(0, "It opened in 1894.\n- It fell in 1907.", evidence=(1,))
    _, written, _ = apply_to_answer([chain_item("failed", "")], drafted, [again], "", checker)
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
def test_each_part_of_a_sentence_keeps_the_mark_of_what_supports_it(
    written: str, shown: str, parts: dict[int, str] | None
) -> None:
    [checked] = Checker(AIRPORTS, (), WORDS).check(written)
    assert checked.stands
    assert checked.text == shown
    assert set(checked.cited) == {1, 2}
    assert parts is None or checked.cited == parts


def test_of_equal_marks_in_a_row_the_last_stays() -> None:
    written = "The bridge opened in 1894 [1], fell in 1907 [1] and was built again in 1912 [1]."
    [checked] = Checker(EVIDENCE, (), WORDS).check(written)
    assert checked.text == "The bridge opened in 1894, fell in 1907 and was built again in 1912 [1]."


def test_a_second_document_of_the_same_fact_is_cited_and_one_that_adds_nothing_is_not() -> None:
    evidence = [
        Document("The network was described by John Hopfield in 1982.", id="a"),
        Document("Hopfield is a name of English origin.", id="b"),
        Document("John Hopfield described the network in 1982.", id="c"),
    ]
    [checked] = Checker(evidence, (), WORDS).check("John Hopfield described the network in 1982 [1][2][3].")
    assert set(checked.cited) == {1, 3}


def test_a_table_and_code_are_units() -> None:
    evidence = [Document("The rate of a vehicle. Car: 0.38 EUR. Bicycle: 0.05 EUR.", id="a")]
    table = "| Vehicle | Rate |\n|---|---|\n| Car | 0.38 EUR | [1]\n| Bicycle | 0.05 EUR |"
    code = "```python\nprint(rates[1])\n```"
    checked = Checker(evidence, (), WORDS).check(f"The rates:\n\n{table}\n\n{code}\n\nCar: 0.38 EUR.")
    assert [(one.stands, one.claims, one.block) for one in checked] == [
        (True, False, False), (True, True, True), (True, False, True), (True, True, False),
    ]  # fmt: skip
    assert checked[1].text == table.replace(" [1]", "") + "\n\n[1]"
    assert checked[2].text == code
    [wrong] = Checker(evidence, (), WORDS).check("| Train | 9 EUR |\n| Plane | 99 EUR |")
    assert not wrong.stands


def test_an_unsupported_sentence_has_no_marks() -> None:
    [checked] = Checker(AIRPORTS, (), WORDS).check("Watertown was bombed by Delta pilots in 1999 [2].")
    assert not checked.stands
    assert checked.text == "Watertown was bombed by Delta pilots in 1999."
