"""Verification: judges the claims of an answer against the evidence. Also has the papers' faith score and Conv-MRFS."""

from langgraph_convcoa.verification.answer_check import Verdict, as_claim, judge
from langgraph_convcoa.verification.faith_score import ConvMRFS, FaithScore, conv_mrfs, faith_score
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import Verifier

__all__ = [
    "ConvMRFS", "Evidence", "FaithScore", "Verdict", "Verifier",
    "as_claim", "as_verifier", "conv_mrfs", "faith_score", "judge",
]  # fmt: skip
