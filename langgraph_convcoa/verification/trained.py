"""A small trained verifier: a cross-encoder in onnxruntime, without torch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.cross_encoder import LONGEST, TextPairs
from langgraph_convcoa.text.words import is_english
from langgraph_convcoa.verification.verifier import CrossEncoderVerifier, LexicalVerifier, Verifier

logger = logging.getLogger(__name__)

_PACKAGE, _FILE = "langgraph_convcoa.verification", "verifier.safetensors"


class TrainedVerifier:
    """A copy of the default encoder that reads a claim and its premise, with a linear layer over [CLS] and the mean.

    Words that stand in both the claim and the premise get their own token types (`token_types`). The file has the differences
    from the encoder's weights in eight bits. The linear layers compute in eight bits (`OnnxBert`). Several threads may use one
    verifier. RetrievalError on first use if the file or the encoder is missing, damaged, or does not fit.

    Example:
        >>> TrainedVerifier("my/verifier.safetensors")
        TrainedVerifier('my/verifier.safetensors')
    """

    def __init__(self, path: str | Path, *, threshold: float | None = None) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._given = threshold
        self._pairs = TextPairs(path, "verifier")

    def __repr__(self) -> str:
        return f"TrainedVerifier({self.name!r})"

    @property
    def threshold(self) -> float:
        """T: the given threshold, or the one chosen when the verifier was trained."""
        return self._given if self._given is not None else self._pairs.number

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        shares = 1 / (1 + np.exp(-np.clip(self._pairs.logits(claims, premises), -60, 60)))
        return [float(share) for share in shares]


class DefaultVerifier:
    """The verifier that comes with the package; it was trained on English. Its T, saved with the weights, is 0.17.

    Text in another language is judged by its words (`LexicalVerifier`), and so is all text if the encoder is not installed. A
    log line says so once.

    Example:
        >>> verifier = DefaultVerifier()
        >>> claims = ["The bridge opened in 1931.", "The bridge closed in 1931."]
        >>> shares = verifier.support(claims, ["The bridge was opened to traffic in 1931."] * 2)
        >>> [share > verifier.threshold for share in shares]
        [True, False]
    """

    name = "default"

    def __init__(self) -> None:
        self._lexical = LexicalVerifier()
        with packaged_verifier() as path:
            self._trained = TrainedVerifier(path)
        self._missing: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _default, ()

    @property
    def threshold(self) -> float:
        """T of the trained verifier, or of the lexical one if the encoder is not installed."""
        return self._trained.threshold if self._ready() else self._lexical.threshold

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        if not self._ready():
            return self._lexical.support(claims, premises)
        shares = [0.0] * len(claims)
        pairs = enumerate(zip(claims, premises, strict=True))
        read = [n for n, (claim, premise) in pairs if is_english(claim[:LONGEST], premise[:LONGEST])]
        for n, share in zip(read, self._trained.support([claims[n] for n in read], [premises[n] for n in read]), strict=True):
            shares[n] = share
        if len(read) < len(claims):
            self._say("Claims in other languages than English are judged by shared words.")
            others = [n for n in range(len(claims)) if n not in set(read)]
            found = self._lexical.support([claims[n] for n in others], [premises[n] for n in others])
            for n, share in zip(others, found, strict=True):
                shares[n] = self._scaled(share)
        return shares

    def _scaled(self, share: float) -> float:
        """The share of shared words, scaled so that the lexical T becomes the trained T."""
        least, own = self._lexical.threshold, self._trained.threshold
        return own * share / least if share <= least else own + (1 - own) * (share - least) / (1 - least)

    def _ready(self) -> bool:
        if self._missing is None:
            try:
                _ = self._trained.threshold
                self._missing = ""
            except RetrievalError as error:
                self._missing = str(error)
                self._say(f"Answers are verified by shared words only: {error}")
        return not self._missing

    def _say(self, line: str) -> None:
        if line not in _SAID:
            _SAID.add(line)
            logger.warning(line)


_SAID: set[str] = set()


def packaged_verifier() -> AbstractContextManager[Path]:
    """The file of the verifier that comes with the package."""
    return as_file(files(_PACKAGE) / _FILE)


def as_verifier(verifier: Verifier | str) -> Verifier:
    """The verifier of this name; an object with `support` is returned unchanged.

    "default" is the package's own `DefaultVerifier`, "lexical" the share of shared words, a file `*.safetensors` a
    `TrainedVerifier`. Any other name is the name or the folder of a sentence-transformers `CrossEncoder`.

    Raises InputError for anything else.

    Example:
        >>> as_verifier("lexical").name
        'lexical'
    """
    if verifier == "lexical":
        return LexicalVerifier()
    if verifier == "default":
        return _default()
    if isinstance(verifier, str) and verifier.endswith(".safetensors"):
        return TrainedVerifier(verifier)
    if isinstance(verifier, str) and verifier.strip():
        return CrossEncoderVerifier(verifier)
    if not isinstance(verifier, str) and isinstance(verifier, Verifier):
        return verifier
    known = '"default", "lexical", the name of a CrossEncoder, or an object with `support`'
    raise InputError(f"verifier must be {known}, not {verifier!r}.")


@cache
def _default() -> DefaultVerifier:
    """The one default verifier of a process: its weights take 100 MB, and graphs are built often."""
    return DefaultVerifier()
