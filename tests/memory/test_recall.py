from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from langgraph_convcoa.chain import Status
from langgraph_convcoa.memory.conversation_memory import TextVectors
from langgraph_convcoa.memory.evidence import RecalledAnswer, RememberedEvidence, recall_answers
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, Round
from tests.fakes import chain_item

NOW = datetime(2026, 1, 2, tzinfo=UTC)
QUESTION = "When was Acme founded?"


def rounds(
    status: Status = "filled",
    answer: str = "In 1982.",
    action: str = "knowledge_retrieval",
    evidence: tuple[str, ...] = ("a", "b"),
    cited: tuple[str, ...] = ("a",),
    uncited: tuple[str, ...] = (),
    time: str = "2026-01-01T00:00:00+00:00",
) -> list[Round]:
    item = chain_item(status, answer, evidence, action=action, sub_question=QUESTION, score=0.9)

    def citations(ids: tuple[str, ...]) -> list[Any]:
        return [{"id": id_, "source": f"{id_}.md", "quote": f"Quote of {id_}."} for id_ in ids]

    knowledge = ContextualKnowledgeSet()
    extra: Any = {"chain": [item], "citations": citations(cited), "time": time, "evidence": citations(uncited)}
    knowledge.add_round("q?", QUESTION, [(QUESTION, answer)], answer, extra)
    knowledge.add_round("x?", "x?", [], "x")
    return knowledge.rounds


def recall(
    known: Any, question: str = "In what year was Acme founded?", evidence: Any = (), **more: Any
) -> list[RecalledAnswer]:
    return recall_answers([(3, "knowledge_retrieval", question)], known, evidence, TextVectors(), now=NOW, **more)


def test_an_answer_comes_back_with_its_evidence() -> None:
    (found,) = recall(rounds())
    assert (found["index"], found["round"], found["answer"], found["score"]) == (3, 1, "In 1982.", 0.9)
    (document,) = found["documents"]
    assert (document.id, document.page_content) == ("a", "Quote of a.")
    assert document.metadata == {"source": "a.md", "quote": "Quote of a.", "recalled_from": 1}


def test_the_evidence_memory_has_the_whole_texts() -> None:
    remembered: RememberedEvidence = {
        "id": "a", "text": "All of a.", "source": "a.md", "title": "A", "quote": "of a", "round": 1,
    }  # fmt: skip
    (found,) = recall(rounds(cited=()), evidence=[remembered])
    assert found["documents"][0].page_content == "All of a."
    assert recall(rounds(cited=()), evidence=[{**remembered, "round": 2}]) == [], "another round's text of that id"


@pytest.mark.parametrize(
    "known",
    [
        rounds(status="unsupported"), rounds(status="failed"), rounds(status="recalled"), rounds(answer=""),
        rounds(action="data_analysis"), rounds(cited=()), rounds(cited=("b",)), rounds(evidence=()),
        ContextualKnowledgeSet(rounds()).export(strict=True)["Contextual knowledge set"],
    ],
)  # fmt: skip
def test_what_was_not_found_or_cannot_be_cited_is_looked_up(known: list[Round]) -> None:
    assert recall(known) == []


def test_what_led_the_evidence_without_being_cited_will_do() -> None:
    (found,) = recall(rounds(cited=("b",), uncited=("a",)))
    assert [document.id for document in found["documents"]] == ["a", "b"]


@pytest.mark.parametrize(("question", "count"), [(QUESTION, 1), ("When was Apex founded?", 0), ("When was it founded?", 0)])
def test_another_question_is_looked_up(question: str, count: int) -> None:
    assert len(recall(rounds(), question)) == count


def test_words_that_agree_are_not_enough() -> None:
    class Apart:
        def encode_queries(self, texts: Sequence[str]) -> Any:
            return np.eye(2, dtype=np.float32)[[int(text == QUESTION) for text in texts]]

    asked = [(0, "knowledge_retrieval", "In what year was Acme founded?")]
    assert not recall_answers(asked, rounds(), (), TextVectors(Apart()), now=NOW)
    assert recall_answers(asked, rounds(), (), TextVectors(Apart()), now=NOW, threshold=0)


def test_an_answer_goes_stale() -> None:
    day = timedelta(days=1).total_seconds()
    assert len(recall(rounds(), max_age=day)) == 1
    assert recall(rounds(), max_age=day - 1) == []
    assert recall(rounds(time="unknown"), max_age=day) == []
    assert len(recall(rounds(time="2026-01-01T00:00:00"), max_age=day)) == 1, "a time without a zone is UTC"


def test_the_latest_answer_counts() -> None:
    known = [*rounds(answer="In 1981."), {**rounds()[0], "round": 3}]
    assert recall(known)[0]["answer"] == "In 1982."


@pytest.mark.parametrize("age", [1e11, 1e30, float("inf")])
def test_an_age_beyond_any_date_makes_nothing_stale(age: float) -> None:
    [found] = recall_answers([(0, "knowledge_retrieval", QUESTION)], rounds(), [], TextVectors(), max_age=age, now=NOW)
    assert found["answer"] == "In 1982."
