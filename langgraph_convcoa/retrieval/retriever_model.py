"""The trained model of a retriever: opened by name or folder, and saved with an index."""

from __future__ import annotations

from pathlib import Path

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.model import DEFAULT_MODEL, UNTRAINED, RetrieverModel

_BESIDE = "index:model"
MODEL_FOLDER = "model"


def opened_model(model: RetrieverModel | str | Path | None, index: Path | None = None) -> RetrieverModel | str | None:
    """A model in a folder, or beside an index, loaded; names of models as they are, since they depend on the encoder."""
    if model is None or isinstance(model, RetrieverModel) or model in (DEFAULT_MODEL, UNTRAINED):
        return model
    if not isinstance(model, str | Path):
        raise InputError(f"model must be 'default', 'untrained', a folder or a RetrieverModel, not {type(model).__name__}.")
    return RetrieverModel.load(index / MODEL_FOLDER if model == _BESIDE and index is not None else model)


def own_encoder(model: RetrieverModel | str | None) -> Encoder | None:
    """The encoder that a model was trained along with; None where it is one that is known by its name."""
    if isinstance(model, RetrieverModel) and model.encoder_folder is not None:
        return SentenceTransformerEncoder(str(model.encoder_folder))
    return None


def stated_model(model: RetrieverModel | str | Path | None, index: str | Path) -> str | None:
    """How the settings of an index name its model: by name, by folder, as saved with the index, or not at all."""
    if not isinstance(model, RetrieverModel):
        return None if model is None else str(model)
    if model.source == DEFAULT_MODEL:
        # The choice of whoever opens the index, as it was the choice of who made it.
        return None
    beside = Path(index).resolve() / MODEL_FOLDER
    return str(Path(model.source).resolve()) if model.source and Path(model.source).resolve() != beside else _BESIDE
