from __future__ import annotations

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
