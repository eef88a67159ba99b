"""Rerankers: the best passages of a search, read together with the question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.cross_encoder import SentenceTransformersPairs, TextPairs

_FILE = "reranker.safetensors"
_WORDS, _OF_A_TURN, _LEAST = 64, 24, 4


@runtime_checkable
class Reranker(Protocol):
    """A judge of passages.

    Attributes:
        weight: `weight * logit` is added to the search's score.
    """

    @property
    def weight(self) -> float: ...

    def logits(self, question: str, passages: Sequence[str]) -> Sequence[float]:
        """How well each passage answers the question: the logit of a probability."""
        ...


class TrainedReranker:
    """Three layers of the default encoder that read a question with its turns and a passage (`TextPairs`).

    RetrievalError on first use if the file or the encoder is missing, damaged, or does not fit.

    Example:
        >>> TrainedReranker("my/reranker.safetensors").path.name
        'reranker.safetensors'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._pairs = TextPairs(path, "reranker")

    @property
    def weight(self) -> float:
        """The weight that was chosen when the reranker was trained."""
        return self._pairs.number

    def logits(self, question: str, passages: Sequence[str]) -> list[float]:
        return [float(logit) for logit in self._pairs.logits([question] * len(passages), passages)]


class CrossEncoderReranker:
    """A sentence-transformers `CrossEncoder` with one output; loaded on first use; RetrievalError if loading fails.

    Example:
        >>> CrossEncoderReranker("cross-encoder/ms-marco-MiniLM-L6-v2").weight
        0.1
    """

    def __init__(self, name: str, *, weight: float = 0.1, device: str | None = None) -> None:
        self.name, self.weight, self.device = name, weight, device
        self._pairs = SentenceTransformersPairs(name, device, ("reranker", "rerank=0"))

    def logits(self, question: str, passages: Sequence[str]) -> list[float]:
        found: list[float] = self._pairs.logits([(question, passage) for passage in passages]).tolist()
        return found


def as_reranker(reranker: Reranker | str) -> Reranker:
    """The reranker of this name, opened once; an object with `logits` is returned unchanged.

    "default" is the package's own reranker. A file `*.safetensors` is opened as a `TrainedReranker`. Any other name is the
    name or the folder of a sentence-transformers `CrossEncoder`. Raises InputError for objects of other types.

    Example:
        >>> type(as_reranker("cross-encoder/ms-marco-MiniLM-L6-v2")).__name__
        'CrossEncoderReranker'
    """
    if isinstance(reranker, str) and reranker.strip():
        return _named(reranker)
    # These are known without reading their files.
    known_type = isinstance(reranker, TrainedReranker | CrossEncoderReranker)
    if not isinstance(reranker, str) and (known_type or isinstance(reranker, Reranker)):
        return reranker
    known = '"default", the name of a CrossEncoder, or an object with `logits` and `weight`'
    raise InputError(f"reranker must be {known}, not {reranker!r:.60}.")


@cache
def _named(name: str) -> Reranker:
    if name == "default":
        return default_reranker()
    return TrainedReranker(name) if name.endswith(".safetensors") else CrossEncoderReranker(name)


class _DefaultReranker(TrainedReranker):
    def __reduce__(self) -> tuple[Any, ...]:
        return default_reranker, ()


@cache
def default_reranker() -> TrainedReranker:
    """The reranker that comes with the package; it was trained on English."""
    with as_file(files(__package__) / _FILE) as path:
        return _DefaultReranker(path)


def conversation_text(question: str, turns: Sequence[tuple[str, str]]) -> str:
    """A question with the turns before it, newest first, in at most 64 words. `turns` begin with the oldest.

    Example:
        >>> conversation_text("Since when?", [("Who runs the mill?", "Ada Berg."), ("Where is it?", "In Leith.")])
        'Since when? || Where is it? In Leith. || Who runs the mill? Ada Berg.'
    """
    found = question.split()[:_WORDS]
    for asked, answer in reversed(turns):
        room = _WORDS - len(found) - 1
        if room < _LEAST:
            break
        found += ["||", *(asked.split()[:_OF_A_TURN] + answer.split()[:_OF_A_TURN])[:room]]
    return " ".join(found)
