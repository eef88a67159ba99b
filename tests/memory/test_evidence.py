from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.memory.conversation_memory import TextVectors
from langgraph_convcoa.memory.evidence import LONGEST, RememberedEvidence, as_document, integrate, remember_evidence

VECTORS = TextVectors()


def memory(*texts: str, number: int = 1, capacity: int = 40) -> list[RememberedEvidence]:
    documents = [Document(text, id=f"m{n}", metadata={"source": "s", "title": "t"}) for n, text in enumerate(texts)]
    return remember_evidence([], documents, number, capacity)


def fresh(*texts: str) -> list[Document]:
    return [Document(text, id=f"f{n}") for n, text in enumerate(texts)]


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), max_size=5), max_size=8), st.integers(0, 6))
def test_the_memory_is_bounded_and_holds_each_text_once_the_newest_last(turns: list[list[str]], capacity: int) -> None:
    kept: list[RememberedEvidence] = []
    for number, texts in enumerate(turns, 1):
        kept = remember_evidence(kept, [Document(text, id=text) for text in texts], number, capacity)
        assert len(kept) <= capacity
        assert len({entry["text"] for entry in kept}) == len(kept)
        if texts and capacity:
            assert kept[-1]["text"] == texts[0], "the best of the last turn goes last"
    assert [entry["round"] for entry in kept] == sorted(entry["round"] for entry in kept)


def test_a_text_too_long_for_every_checkpoint_is_not_kept() -> None:
    assert memory("x" * (LONGEST + 1), "", "short") == memory("x" * (LONGEST + 1), "", "short")[-1:]


def test_what_comes_back_is_the_document() -> None:
    (entry,) = memory("A text.")
    document = as_document(entry, 0.5)
    assert (document.id, document.page_content) == ("m0", "A text.")
    assert document.metadata == {"source": "s", "title": "t", "score": 0.5, "recalled_from": 1}


QUESTION = "Who introduced sparsemax?"
RIGHT = "Martins introduced sparsemax."


def test_the_weakest_third_gives_way_to_what_is_closer() -> None:
    documents = fresh("Sparsemax was introduced once.", "Bees live.", "Ants live.", "Crabs.", "Ducks.", "Eels.")
    found, taken = integrate(QUESTION, documents, memory(RIGHT, "Foxes live.", "Who introduced what?"), {1}, VECTORS)
    assert taken == 2
    assert len(found) == len(documents)
    assert [d.id for d in found[:4]] == ["f0", "f1", "f2", "f3"], "two thirds are never touched"
    assert {d.page_content for d in found[4:]} == {RIGHT, "Who introduced what?"}


def test_what_is_not_closer_stays_out() -> None:
    documents = fresh("Sparsemax was introduced.", "Bees.", "Sparsemax was introduced by Martins.")
    found, taken = integrate(QUESTION, documents, memory("Foxes live."), {1}, VECTORS)
    assert (found, taken) == (documents, 0)


def test_evidence_of_another_topic_is_not_considered() -> None:
    documents = fresh("Ants.", "Bees.", "Crabs.")
    assert integrate(QUESTION, documents, memory(RIGHT, number=4), {1, 2, 3}, VECTORS)[1] == 0
    assert integrate(QUESTION, documents, memory(RIGHT, number=4), {4}, VECTORS)[1] == 1


def test_no_text_comes_twice_and_two_pieces_are_too_few() -> None:
    assert integrate(QUESTION, fresh(RIGHT, "Bees.", "Ants."), memory(RIGHT), {1}, VECTORS)[1] == 0
    assert integrate(QUESTION, fresh("Bees.", "Ants."), memory(RIGHT), {1}, VECTORS)[1] == 0
