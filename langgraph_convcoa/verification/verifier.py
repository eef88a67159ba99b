"""Verifiers: how likely it is that evidence supports a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.cross_encoder import SentenceTransformersPairs
from langgraph_convcoa.text.words import content_items

_LONGEST = 4_000  # Longest part of a claim or a premise that is read, in characters.
_PREFIX = "entail"


@runtime_checkable
class Verifier(Protocol):
    """A judge of claims.

    Attributes:
        name: Shown in reports.
        threshold: T, the probability above which a claim stands.
    """

    @property
    def name(self) -> str: ...

    @property
    def threshold(self) -> float: ...

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        """Probability in [0, 1] that each premise supports the claim at the same place."""
        ...


class LexicalVerifier:
    """The share of a claim's content words that its premise holds; numbers and names count twice.

    It needs no model and reads any language, but it cannot tell who did what to whom: use it as a baseline.

    Example:
        >>> lexical = LexicalVerifier()
        >>> lexical.support(["Ada wrote it in 1843.", "Ada wrote it in 1900."], ["It was written by Ada in 1843."] * 2)
        [0.75, 0.25]
    """

    name = "lexical"

    def __init__(self, threshold: float = 0.75) -> None:
        self.threshold = threshold

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        found = []
        for claim, premise in zip(claims, premises, strict=True):
            items = content_items(claim[:_LONGEST])
            held = {item.form for item in content_items(premise)}
            total = sum(item.weight for item in items)
            found.append(sum(item.weight for item in items if item.form in held) / total if total else 0.0)
        return found


class CrossEncoderVerifier:
    """A sentence-transformers `CrossEncoder` that reads the premise and then the claim; loaded on first use.

    A single output is read as the logit of support. For a model with several outputs, such as
    cross-encoder/nli-deberta-v3-base, the output whose label begins with "entail" counts. RetrievalError on first use if the
    model cannot be loaded or has no such label.

    Example:
        >>> CrossEncoderVerifier("cross-encoder/nli-deberta-v3-base")
        CrossEncoderVerifier('cross-encoder/nli-deberta-v3-base', threshold=0.5)
    """

    def __init__(self, name: str, *, threshold: float = 0.5, device: str | None = None) -> None:
        self.name, self.threshold, self.device = name, threshold, device
        self._pairs = SentenceTransformersPairs(name, device, ("verifier", 'verifier="lexical"'))

    def __repr__(self) -> str:
        return f"CrossEncoderVerifier({self.name!r}, threshold={self.threshold})"

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        pairs = list(zip(premises, claims, strict=True))
        if not pairs:
            return []
        labels = self._pairs.labels()
        wanted = [place for place, label in enumerate(labels) if label.lower().startswith(_PREFIX)]
        if len(labels) > 1 and not wanted:
            raise RetrievalError(
                f"The verifier {self.name!r} has {len(labels)} outputs ({', '.join(labels)}), none of them called "
                "entailment; use a model with one output or an NLI model."
            )
        logits = self._pairs.logits(pairs)
        if len(labels) == 1:
            shares = 1 / (1 + np.exp(-np.clip(logits.reshape(len(pairs)), -60, 60)))
        else:
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            shares = powers[:, wanted[0]] / powers.sum(axis=1)
        return [float(share) for share in shares]
