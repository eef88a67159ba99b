from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.nodes.verify import apply_corrections, verify_chain
from langgraph_convcoa.reasoning.base import Correction, Unsolved
from langgraph_convcoa.state import Finding, PlannedNode, finding, merge_findings
from tests.fakes import WORDS

FACT = "Sparsemax was introduced in 2016."


def found(index: int, *texts: str, **more: Any) -> Finding:
    return finding(index, "", [Document(text, id=text[:20]) for text in texts], **more)


def planned(guess: str, sub: str = "When was sparsemax introduced?") -> PlannedNode:
    return {"action": "a", "sub_question": sub, "guess_answer": guess, "action_input": ""}


def verify(guess: str, *findings: Finding, history: Any = (), **settings: Any) -> tuple[dict[str, Any], list[int]]:
    items, unsolved = verify_chain([planned(guess)], merge_findings(findings), history, WORDS, **settings)
    return dict(items[0]), unsolved


@given(st.permutations([found(1, "b"), found(0, "a"), found(0, "deep", "a", depth=2)]))
def test_findings_merge_by_index_whatever_their_order(findings: list[Finding]) -> None:
    merged = merge_findings(findings)
    assert [d.page_content for d in merged.found[0].documents] == ["deep", "a"]
    assert [d.page_content for d in merged.found[1].documents] == ["b"]
    assert [d.page_content for d in merged.documents] == ["a", "b", "deep"], "a number is kept when more is found"


def test_copies_of_a_page_have_one_number() -> None:
    page, copy = (Document("It is old.", id=id_, metadata={"title": "The page"}) for id_ in ("v1", "v2"))
    other = Document("It is old.", id="o", metadata={"title": "Another page"})
    merged = merge_findings([finding(0, "a", [page, copy, other]), finding(1, "a", [copy])])
    assert [d.id for d in merged.documents] == ["v1", "o"]
    assert [[d.id for d in merged.found[index].documents] for index in (0, 1)] == [["v1", "o"], ["v1"]]


@pytest.mark.parametrize(
    ("guess", "findings", "status", "unsolved"),
    [
        ("In 2016.", [found(0, FACT)], "kept", []),
        ("In 2017, by divers from Greenland.", [found(0, FACT)], "unsupported", [0]),
        ("", [found(0, FACT)], "unsupported", [0]),
        ("In 2016.", [found(0)], "unsupported", []),
        ("", [found(0)], "unsupported", []),
        ("In 2016.", [found(0, error="broke")], "failed", []),
        ("In 2016.", [found(0, FACT), found(0, depth=2, error="broke")], "kept", []),
    ],
)
def test_what_becomes_of_a_guess(guess: str, findings: list[Finding], status: str, unsolved: list[int]) -> None:
    item, left = verify(guess, *findings)
    assert (item["status"], left) == (status, unsolved)


def test_the_history_supports_a_guess_too() -> None:
    item, _ = verify("In 2016.", found(0), history=[("When was sparsemax introduced?", FACT)])
    assert item["status"] == "kept"
    assert item["evidence"] == []


def test_the_supporting_document_leads_the_evidence() -> None:
    item, _ = verify("In 2016.", found(0, "Other things happened.", FACT))
    assert item["evidence"] == [FACT[:20], "Other things happene"]


def test_the_threshold_is_a_setting() -> None:
    assert verify("In 2016.", found(0, FACT), threshold=1.0)[0]["status"] == "unsupported"
    assert verify("In 2016.", found(0, FACT), threshold=0.5)[0]["status"] == "kept"


def corrected(*corrections: Correction, guess: str = "In 2017.", failure: str = "") -> dict[str, Any]:
    evidence = merge_findings([found(0, FACT)])
    items, _ = verify_chain([planned(guess)], evidence, (), WORDS)
    unsolved = [Unsolved(0, items[0]["sub_question"], guess, evidence.documents)]
    return dict(apply_corrections(items, unsolved, corrections, failure, evidence, WORDS)[0])


def test_corrections_are_scored_against_their_evidence() -> None:
    good = corrected(Correction(0, FACT, "[1]"))
    bad = corrected(Correction(0, "In 1950, by accident.", "[1]"))
    assert (good["status"], good["answer"], good["reason"]) == ("corrected", FACT, "[1]")
    assert good["score"] > 0.9 > 0.5 > bad["score"]
    assert corrected(Correction(0, FACT), guess="")["status"] == "filled"


def test_a_correction_that_finds_nothing_is_unsupported() -> None:
    item = corrected(Correction(0, "", "not there", supported=False))
    assert (item["status"], item["answer"], item["reason"]) == ("unsupported", "", "not there")


def test_a_guess_that_the_second_call_confirms_is_confirmed() -> None:
    item = corrected(Correction(0, "in 2017 [1]", evidence=[1]))
    assert (item["status"], item["answer"]) == ("confirmed", "in 2017")


def test_an_item_has_the_paths_to_evidence_that_was_reached_through_others() -> None:
    here = found(0, FACT, "other")
    here["documents"][0].metadata["graph_path"] = ["question", "Ed Wood", '"Tim Burton"', "Tim Burton"]
    here["documents"][1].metadata["graph_path"] = ["question", "other"]
    item, _ = verify("In 2016.", here)
    assert item["paths"] == {FACT[:20]: ["question", "Ed Wood", '"Tim Burton"', "Tim Burton"]}
    assert "paths" not in verify("In 2016.", found(0, FACT))[0]
