"""The choice of an encoder by name, and the settings from which a saved index opens its encoder again."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_core.embeddings import Embeddings

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

_EARLIER = {
    *(("dtype", dtype) for dtype in ("auto", "bfloat16", "torchao-int8")),
    *(("attention", "auto"), ("attention", "softmax"), ("pooling", "auto"), ("windows", "apart")),
}
"""Settings of earlier releases, whose vectors are nearly the same."""


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
    # Looked up in the class: an encoder's properties may load a model.
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
