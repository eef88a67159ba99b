"""An encoder around any LangChain `Embeddings`, the choice of an encoder, and the settings that open it again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError, check_least, first_line
from langgraph_convcoa.retrieval.encoders.base import Encoder, RecentValues, Vectors, normalised
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

_KEPT = 1024  # Number of questions whose vectors are kept: a turn encodes its question several times.
_NAME_ATTRIBUTES = ("model", "model_name", "model_id", "deployment", "repo_id")
_EARLIER = {
    *(("dtype", dtype) for dtype in ("auto", "bfloat16", "torchao-int8")),
    *(("attention", "auto"), ("attention", "softmax"), ("pooling", "auto"), ("windows", "apart")),
}
"""Settings of earlier releases, whose vectors are nearly the same."""


class EmbeddingsEncoder(Encoder):
    """Encode with a LangChain `Embeddings` object, `batch_size` texts a call.

    `name` identifies the vectors in caches. If it is None, the name is the class and model name, or a unique name if the
    object has no model name. If `count_tokens` is None, a third of the UTF-8 bytes are counted, which is rarely too few. A
    passage has at most `max_tokens`. Methods raise RetrievalError if the embeddings fail or return unusable vectors.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> encoder = EmbeddingsEncoder(DeterministicFakeEmbedding(size=8))
        >>> encoder.encode_queries(["Who?"]).shape
        (1, 8)
    """

    name: str = ""
    max_tokens: int = 512

    def __init__(
        self,
        embeddings: Embeddings,
        *,
        name: str | None = None,
        max_tokens: int = 512,
        count_tokens: Callable[[str], int] | None = None,
        batch_size: int = 64,
    ) -> None:
        self.embeddings = embeddings
        self.name = name or _fingerprint(embeddings)
        self.max_tokens, self.batch_size = max_tokens, batch_size
        check_least(self, max_tokens=16, batch_size=1)
        self._count = count_tokens
        self._dimension: int | None = None
        self._queries = RecentValues[str, Vectors](_KEPT)

    def __repr__(self) -> str:
        return f"EmbeddingsEncoder({type(self.embeddings).__name__})"

    @property
    def dimension(self) -> int:
        if self._dimension is None:
            self.encode_queries(["dimension"])
        return self._dimension or 0

    def count_tokens(self, text: str) -> int:
        return self._count(text) if self._count else len(text.encode("utf-8", "replace")) // 3 + 2

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        found = self._queries.of(texts, lambda new: self._vectors(self._call(self._embed_queries, new), len(new)))
        return np.stack([found[text] for text in texts]) if texts else self._vectors([], 0)

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        batches = (texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size))
        rows = [row for batch in batches for row in self._call(self.embeddings.embed_documents, batch)]
        return self._vectors(rows, len(texts))

    def _vectors(self, rows: Any, count: int) -> Vectors:
        vectors = normalised(rows, count, self._dimension, self.name)
        if count:
            self._dimension = vectors.shape[1]
        return vectors

    def _embed_queries(self, texts: list[str]) -> list[list[float]]:
        return [self.embeddings.embed_query(text) for text in texts]

    def _call(self, embed: Callable[[list[str]], list[list[float]]], texts: Sequence[str]) -> list[list[float]]:
        try:
            return list(embed(list(texts)))
        except ConvCoAError:
            raise
        except Exception as error:  # whatever a third party's embeddings raise
            raise RetrievalError(f"The embeddings {self.name!r} failed: {first_line(error, named=True)}.") from error


def _fingerprint(embeddings: Embeddings) -> str:
    kind = f"{type(embeddings).__module__}.{type(embeddings).__qualname__}"
    # Azure calls the model of a deployment, whatever `model` says.
    azure = hasattr(embeddings, "azure_endpoint")
    for attribute in ("deployment", *_NAME_ATTRIBUTES) if azure else _NAME_ATTRIBUTES:
        model = getattr(embeddings, attribute, None)
        if isinstance(model, str) and model:
            return f"{kind}:{model}:{getattr(embeddings, 'dimensions', None)}"
    return f"{kind}:{uuid.uuid4().hex}"


def as_encoder(encoder: Encoder | Embeddings | str | None) -> Encoder:
    """An encoder from None (the default), a model name or folder, embeddings, or an encoder; InputError for others.

    Example:
        >>> as_encoder(None)
        SentenceTransformerEncoder('sentence-transformers/all-MiniLM-L6-v2', dtype='int8')
    """
    if encoder is None:
        return SentenceTransformerEncoder()
    if isinstance(encoder, str):
        return SentenceTransformerEncoder(encoder)
    if isinstance(encoder, Embeddings):
        return EmbeddingsEncoder(encoder)
    # The members are looked up in the class: an encoder's properties may load a model.
    if all(hasattr(type(encoder), member) for member in ("encode_queries", "encode_passages", "count_tokens")):
        return encoder
    raise InputError(f"An encoder must be an Encoder, LangChain Embeddings or a model name, not {type(encoder).__name__}.")


def encoder_settings(encoder: Encoder) -> dict[str, str] | None:
    """The settings for `encoder_from_settings`; None for an encoder that cannot be opened by name."""
    return {"name": encoder.model_name, "dtype": encoder.dtype} if isinstance(encoder, SentenceTransformerEncoder) else None


def encoder_from_settings(settings: Mapping[str, str]) -> Encoder:
    """Open the encoder of these `encoder_settings`; RetrievalError for unknown settings, such as those of another release."""
    settings = {key: value for key, value in settings.items() if (key, value) not in _EARLIER}
    try:
        if not {"name"} <= set(settings) <= {"name", "dtype"}:
            raise InputError(f"they are {dict(settings)}")
        return SentenceTransformerEncoder(settings["name"], dtype=settings.get("dtype", "int8"))
    except InputError as error:
        message = f"The encoder's settings are not known here ({error}); index again, or give the encoder."
        raise RetrievalError(message) from error
