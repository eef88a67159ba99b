"""Verification: faith score, Conv-MRFS and their calibration (Pan et al. 2024b, sec. 3, Pan et al. 2024a, section 2.2.2)."""

from langgraph_convcoa.verification.claims import SentenceVerdict, verify_sentences, weakest
from langgraph_convcoa.verification.faith_score import FaithScore, faith_score
from langgraph_convcoa.verification.mrfs import ConvMRFS, conv_mrfs
from langgraph_convcoa.verification.references import References
from langgraph_convcoa.verification.support import SentenceSupport, support_sentences

__all__ = [
    "ConvMRFS",
    "FaithScore",
    "References",
    "SentenceSupport",
    "SentenceVerdict",
    "conv_mrfs",
    "faith_score",
    "support_sentences",
    "verify_sentences",
    "weakest",
]
