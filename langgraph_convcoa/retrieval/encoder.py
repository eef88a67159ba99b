"""The encoders, and the choice of one."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.base import DEFAULT_ENCODER, Encoder, Vectors
from langgraph_convcoa.retrieval.embeddings import EmbeddingsEncoder
from langgraph_convcoa.retrieval.sentence_transformer import SentenceTransformerEncoder

__all__ = ["DEFAULT_ENCODER", "EmbeddingsEncoder", "Encoder", "SentenceTransformerEncoder", "Vectors", "as_encoder"]


def as_encoder(encoder: Encoder | Embeddings | str | None) -> Encoder:
    """An encoder from what a user names: None for the default, a model name or folder, embeddings, or an encoder.

    Raises:
        InputError: It is none of these.

    Example:
        >>> as_encoder(None)
        SentenceTransformerEncoder('sentence-transformers/all-MiniLM-L6-v2', dtype='auto')
    """
    if encoder is None:
        return SentenceTransformerEncoder()
    if isinstance(encoder, str):
        return SentenceTransformerEncoder(encoder)
    if isinstance(encoder, Embeddings):
        return EmbeddingsEncoder(encoder)
    # Asked of the class: an encoder's properties may load a model, which a runtime-checked protocol would read.
    if all(hasattr(type(encoder), member) for member in ("encode_queries", "encode_passages", "count_tokens")):
        return encoder
    raise InputError(f"An encoder must be an Encoder, LangChain Embeddings or a model name, not {type(encoder).__name__}.")
