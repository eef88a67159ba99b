"""The choice of an encoder by name, and the settings by which one is saved and opened again."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_core.embeddings import Embeddings

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.encoders.wrappers import TwoTowerEncoder

_TOWERS = ("question", "passage")
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
    # Asked of the class: an encoder's properties may load a model, which a runtime-checked protocol would read.
    if all(hasattr(type(encoder), member) for member in ("encode_queries", "encode_passages", "count_tokens")):
        return encoder
    raise InputError(f"An encoder must be an Encoder, LangChain Embeddings or a model name, not {type(encoder).__name__}.")


def encoder_settings(encoder: Encoder) -> dict[str, str] | None:
    """The settings that `encoder_from_settings` rebuilds an encoder from; None where it has none.

    Example:
        >>> encoder_settings(SentenceTransformerEncoder("some/model", dtype="float32"))
        {'name': 'some/model', 'dtype': 'float32'}
    """
    if isinstance(encoder, SentenceTransformerEncoder):
        return {"name": encoder.model_name, "dtype": encoder.dtype}
    if isinstance(encoder, TwoTowerEncoder):
        towers = {tower: encoder_settings(getattr(encoder, tower)) for tower in _TOWERS}
        if all(towers.values()):
            return {f"{tower}.{key}": value for tower, settings in towers.items() for key, value in (settings or {}).items()}
    return None


def encoder_from_settings(settings: Mapping[str, str]) -> Encoder:
    """The encoder of `encoder_settings`; RetrievalError for other settings, such as those of a later release."""
    if any("." in key for key in settings):
        towers = [
            encoder_from_settings({key.partition(".")[2]: v for key, v in settings.items() if key.startswith(f"{tower}.")})
            for tower in _TOWERS
        ]
        return TwoTowerEncoder(*towers)
    settings = {key: value for key, value in settings.items() if (key, value) not in _EARLIER}
    try:
        if not {"name"} <= set(settings) <= {"name", "dtype"}:
            raise InputError(f"they are {dict(settings)}")
        return SentenceTransformerEncoder(settings["name"], dtype=settings.get("dtype", "int8"))
    except InputError as error:
        message = f"The encoder's settings are not known here ({error}); index again, or give the encoder."
        raise RetrievalError(message) from error
