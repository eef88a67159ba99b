from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.nodes.correct import apply_corrections
from langgraph_convcoa.nodes.evidence import evidence_of
from langgraph_convcoa.nodes.remember import turn_seconds
from langgraph_convcoa.nodes.verify import verify_chain
from langgraph_convcoa.reasoning.base import Correction, Unsolved
from langgraph_convcoa.state import Finding, PlannedNode
from langgraph_convcoa.usage import node_usage
from tests.fakes import WORDS

FACT = "Sparsemax was introduced in 2016."


def finding(index: int, *texts: str, depth: int = 1, error: str = "", seconds: float = 0.0) -> Finding:
    documents = [Document(text, id=text[:20]) for text in texts]
    return {"index": index, "depth": depth, "documents": documents, "error": error, "seconds": seconds}


def planned(guess: str, sub: str = "When was sparsemax introduced?") -> PlannedNode:
    return {"action": "a", "sub_question": sub, "guess_answer": guess, "action_input": ""}


def verify(guess: str, *findings: Finding, history: Any = (), **settings: Any) -> tuple[dict[str, Any], list[int]]:
    items, unsolved = verify_chain([planned(guess)], evidence_of(findings), history, WORDS, **settings)
    return dict(items[0]), unsolved


@given(st.permutations([finding(1, "b"), finding(0, "a"), finding(0, "deep", "a", depth=2)]))
def test_findings_merge_by_index_whatever_their_order(findings: list[Finding]) -> None:
    merged = evidence_of(findings)
    assert [d.page_content for d in merged.found[0].documents] == ["deep", "a"]
    assert [d.page_content for d in merged.found[1].documents] == ["b"]
    assert [d.page_content for d in merged.documents] == ["a", "b", "deep"], "a number is kept when more is found"


@pytest.mark.parametrize(
    ("guess", "findings", "status", "unsolved"),
    [
        ("In 2016.", [finding(0, FACT)], "kept", []),
        ("In 2017, by divers from Greenland.", [finding(0, FACT)], "unsupported", [0]),
        ("", [finding(0, FACT)], "unsupported", [0]),
        ("In 2016.", [finding(0)], "unsupported", []),
        ("", [finding(0)], "unsupported", []),
        ("In 2016.", [finding(0, error="broke")], "failed", []),
        ("In 2016.", [finding(0, FACT), finding(0, depth=2, error="broke")], "kept", []),
    ],
)
def test_what_becomes_of_a_guess(guess: str, findings: list[Finding], status: str, unsolved: list[int]) -> None:
    item, left = verify(guess, *findings)
    assert (item["status"], left) == (status, unsolved)


def test_the_history_bears_a_guess_out_too() -> None:
    item, _ = verify("In 2016.", finding(0), history=[("When was sparsemax introduced?", FACT)])
    assert item["status"] == "kept"
    assert item["evidence"] == []


def test_the_bearing_document_leads_the_evidence() -> None:
    item, _ = verify("In 2016.", finding(0, "Other things happened.", FACT))
    assert item["evidence"] == [FACT[:20], "Other things happene"]


def test_the_threshold_is_a_setting() -> None:
    assert verify("In 2016.", finding(0, FACT), threshold=1.0)[0]["status"] == "unsupported"
    assert verify("In 2016.", finding(0, FACT), threshold=0.5)[0]["status"] == "kept"


def corrected(*corrections: Correction, guess: str = "In 2017.", failure: str = "") -> dict[str, Any]:
    evidence = evidence_of([finding(0, FACT)])
    items, _ = verify_chain([planned(guess)], evidence, (), WORDS)
    unsolved = [Unsolved(0, items[0]["sub_question"], guess, evidence.documents)]
    return dict(apply_corrections(items, unsolved, corrections, failure, evidence, WORDS)[0])


def test_corrections_are_scored_against_their_evidence() -> None:
    good = corrected(Correction(0, FACT, "[1]"))
    bad = corrected(Correction(0, "In 1950, by accident.", "[1]"))
    assert (good["status"], good["answer"], good["reason"]) == ("corrected", FACT, "[1]")
    assert good["score"] > 0.9 > 0.5 > bad["score"]
    assert corrected(Correction(0, FACT), guess="")["status"] == "filled"


def test_without_a_correction_the_best_evidence_stands_in() -> None:
    item = corrected(failure="the model is down")
    assert item["answer"] == FACT
    assert "the model is down" in item["reason"]


def test_a_correction_that_finds_nothing_is_unsupported() -> None:
    item = corrected(Correction(0, "", "not there", supported=False))
    assert (item["status"], item["answer"], item["reason"]) == ("unsupported", "", "not there")


def test_a_guess_that_the_second_call_confirms_is_shown_as_that() -> None:
    item = corrected(Correction(0, "in 2017 [1]", evidence=[1]))
    assert (item["status"], item["answer"]) == ("confirmed", "in 2017")


def test_the_nearest_fact_is_partial() -> None:
    assert corrected(Correction(0, FACT, partial=True))["status"] == "partial"


def test_the_time_of_a_turn_counts_the_longest_branch_of_each_depth() -> None:
    costs = {"plan": node_usage(1.0), "web": node_usage(9.0), "answer": node_usage(2.0)}
    findings = [finding(0, seconds=3.0), finding(1, seconds=4.0), finding(0, depth=2, seconds=0.5)]
    assert turn_seconds(costs, findings, {"web"}) == pytest.approx(1 + 2 + 4 + 0.5)


def test_an_item_tells_the_paths_that_led_to_its_evidence_by_way_of_others() -> None:
    found = finding(0, FACT, "other")
    found["documents"][0].metadata["graph_path"] = ["question", "Ed Wood", '"Tim Burton"', "Tim Burton"]
    found["documents"][1].metadata["graph_path"] = ["question", "other"]
    item, _ = verify("In 2016.", found)
    assert item["paths"] == {FACT[:20]: ["question", "Ed Wood", '"Tim Burton"', "Tim Burton"]}
    assert "paths" not in verify("In 2016.", finding(0, FACT))[0]
