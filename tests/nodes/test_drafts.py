from __future__ import annotations

from langchain_core.documents import Document

from langgraph_convcoa.nodes.drafts import Checker, SentenceGate

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
