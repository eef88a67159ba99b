"""Sixty questions about five small documents: right answers, refusals of what is absent, and no heading as an answer."""

import json
import re
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.extractive.coverage import NOTHING
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_shares_of_right_answers_and_refusals() -> None:
    retriever = HopfieldRetriever.from_documents(load_documents(HERE / "small_documents"), progress=False)
    graph = build_graph(retriever=retriever).compile(checkpointer=InMemorySaver())
    rows = [json.loads(line) for line in (HERE / "small_questions.jsonl").read_text(encoding="utf-8").splitlines()]
    wrong: dict[str, list[tuple[str, str]]] = {"answered": [], "absent": []}
    quoted: list[str] = []
    thread = 0
    for row in rows:
        thread += not row.get("follows")
        answer = graph.invoke({"question": row["question"]}, {"configurable": {"thread_id": str(thread)}})["answer"]
        refused = answer.startswith(NOTHING)
        plain = re.sub(r"\s*\[\d+\]", "", answer)
        if row["answer"] is None:
            wrong["absent"] += [] if refused else [(row["question"], answer)]
        elif row["answer"].lower() not in plain.lower() or refused != row.get("refused", False):
            wrong["answered"].append((row["question"], answer))
        quoted += [answer] if "?" in plain and not refused else []
    absent = sum(row["answer"] is None for row in rows)
    assert not quoted
    assert len(wrong["absent"]) <= 0.05 * absent, wrong["absent"]
    assert len(wrong["answered"]) <= 0.1 * (len(rows) - absent), wrong["answered"]
