"""The one decision of verification: whether the evidence supports a claim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import is_sentence
from langgraph_convcoa.verification.verifier import LexicalVerifier, Verifier

_WORDS = LexicalVerifier()
_LIST_WORDS = 1_000  # Longest premise from a list or the result of a query, in words. It may be long: only words are compared.
_LONG_CLAIM, _LEAST_WORDS = 14, 4
"""A refused claim of at least `_LONG_CLAIM` words is split into clauses of at least `_LEAST_WORDS` words."""
_JOINS = re.compile(r"(?:[;:]|,? (?:and|but|while|whereas|which|who|or|such as|including|so|because|if)\b|,|\()\s+")


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim.

    `score`: the probability in [0, 1] that the evidence supports the claim. `documents`: indexes of the evidence that it was
    checked against, best first. `quote`: the closest sentence of that evidence. `reason`: why it is not supported, or "".
    """

    score: float
    supported: bool
    documents: tuple[int, ...] = ()
    quote: str = ""
    reason: str = ""


def judge(claims: Sequence[str], evidence: Evidence, verifier: Verifier, threshold: float | None = None) -> list[Verdict]:
    """Judge claims, each against the sentences of the evidence that fit it best.

    A claim that is a sentence of the evidence word for word has the score 1. A long claim that is refused is split into
    clauses, and stands if each clause stands. Results of queries and lists of documents are not prose: the share of words
    and figures decides. Without evidence nothing is supported.

    Args:
        claims: Sentences, or short answers with their question (`as_claim`).
        evidence: The pieces of evidence, and the answers of earlier turns.
        verifier: Gives the probability that a premise supports a claim.
        threshold: T; a probability above it is supported. The verifier's own by default.

    Example:
        >>> from langgraph_convcoa.verification.verifier import LexicalVerifier
        >>> evidence = Evidence([("Tay Bridge", "It was opened in 1878. It collapsed in 1879.")])
        >>> [v.supported for v in judge(["The bridge opened in 1878.", "It burned in 1901."], evidence, LexicalVerifier())]
        [True, False]
    """
    least = verifier.threshold if threshold is None else threshold
    premises = [evidence.premise(claim) for claim in claims]
    found = [Verdict(0.0, False, reason="there is no evidence") for _ in claims]
    asked = []
    for n, (claim, premise) in enumerate(zip(claims, premises, strict=True)):
        if (holder := evidence.holder(claim)) is not None:
            found[n] = Verdict(1.0, least < 1, (holder,), " ".join(claim.split()))
        elif evidence.computed.intersection(premise.documents[:1]):
            premises[n] = premise = evidence.premise(claim, _LIST_WORDS)
            share, bar = _WORDS.support([claim], [premise.text])[0], max(least, _WORDS.threshold)
            reason = "" if share > bar else f"{_WORDS.name}: {share:.2f} is not above {bar:.2f}"
            found[n] = Verdict(share, not reason, premise.documents, premise.best, reason)
        elif premise.text:
            asked.append(n)
    shares = verifier.support([claims[n] for n in asked], [premises[n].text for n in asked]) if asked else []
    shares = _by_clause([claims[n] for n in asked], shares, evidence, verifier, least)
    for n, share in zip(asked, shares, strict=True):
        supported = share > least
        reason = "" if supported else f"{verifier.name}: {share:.2f} is not above {least:.2f}"
        found[n] = Verdict(share, supported, premises[n].documents, premises[n].best, reason)
    return found


def _by_clause(
    claims: Sequence[str], shares: Sequence[float], evidence: Evidence, verifier: Verifier, least: float
) -> list[float]:
    """Raise the share of a long refused claim to that of its weakest clause. Each clause has its own premise."""
    clauses = {n: found for n, share in enumerate(shares) if share <= least and len(found := _clauses(claims[n])) > 1}
    parts = [part for found in clauses.values() for part in found]
    given = iter(verifier.support(parts, [evidence.premise(part).text for part in parts]) if parts else [])
    best = list(shares)
    for n, found in clauses.items():
        best[n] = max(best[n], min([next(given) for _ in found]))
    return best


def _clauses(claim: str) -> list[str]:
    """The clauses of a claim; the claim itself if it is short.

    Example:
        >>> _clauses("His father was an amateur musician, and his mother Otylia played the piano until she died.")
        ['His father was an amateur musician', 'his mother Otylia played the piano until she died']
    """
    if len(claim.split()) < _LONG_CLAIM:
        return [claim]
    found: list[str] = []
    for part in filter(None, (one.strip(" .)") for one in _JOINS.split(claim))):
        if found and min(len(part.split()), len(found[-1].split())) < _LEAST_WORDS:
            found[-1] += f", {part}"
        else:
            found.append(part)
    return found


def as_claim(answer: str, question: str) -> str:
    """An answer as a claim: unchanged if it is a sentence, otherwise with the question in front of it.

    Example:
        >>> as_claim("in 1982", "When was it described?"), as_claim("It was described in 1982.", "When was it described?")
        ('When was it described? in 1982', 'It was described in 1982.')
    """
    return answer if not question or is_sentence(answer) else f"{question.strip()} {answer}"
