"""Trained retriever models: weights and settings of the query side, their folder on disk, and the default model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from langgraph_convcoa.errors import InputError, RetrievalError, first_line
from langgraph_convcoa.files import checksums, first_damaged, replacing_folder
from langgraph_convcoa.retrieval.encoders.base import DelegatingEncoder, Encoder
from langgraph_convcoa.retrieval.encoders.bert import DEFAULT_NAMES
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.conversation_state import StateWeights
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder

DEFAULT_MODEL = "default"
UNTRAINED = "untrained"
MODEL_FOLDER = "model"  # Folder of a model that is saved with an index.
_BESIDE = "index:model"

_FORMAT = "convcoa retriever model"
_VERSION = 1
_CONFIG, _CARD = "config.json", "README.md"
_WEIGHTS, _QUERY_ENCODER = "model.safetensors", "question_tower.safetensors"  # "Tower": the query encoder's earlier name.
_SETTINGS = ("beta", "passage_weight", "lexical_weight", "lexical_history", "history_weight", "history_beta")
_STATE_NAMES = ("state.direct", "state.association", "state.history", "state.gate")
# Dtypes in an encoder's name, including those of earlier releases.
_DTYPES = ("int8", "float32", "bfloat16", "torchao-int8")
_REMOVED = {
    "weights": "weights W_Q, W_K and W_V of the association",
    "encoder_folder": "weights of the passage encoder",
    "first_turns": "first questions",
}
_LARGEST = 1e9
_UNBOUNDED = ("beta", "history_beta")
_PLAIN = ("encoder", "settings", "state_weight", "gate")


@dataclass(frozen=True, eq=False)
class RetrieverModel:
    """The trained part of a `HopfieldRetriever`. It changes only how queries are encoded, so existing indexes stay valid.

    RetrievalError for settings that are unknown or out of range.
    """

    encoder: str  # Identity of the encoder whose patterns are searched (`encoder_identity`).
    settings: Mapping[str, float] = field(default_factory=dict)  # Retriever settings; the user's settings take precedence.
    state: StateWeights | None = None  # Projections and gate of the conversation state; untrained when None.
    query_encoder: QueryEncoder | None = None  # When None, the state uses the encoder's vectors alone.
    state_weight: float = 0.0  # g of `mixed_states`.
    gate: float = 0.0  # p of `mixed_states`.
    card: str = ""  # The model card, in Markdown.
    source: str = ""  # "default", the folder that the model was loaded from, or empty.

    def __post_init__(self) -> None:
        unknown = [name for name in self.settings if name not in _SETTINGS]
        if unknown:
            raise RetrievalError(f"The model has an unknown setting {unknown[0]!r}; known: {', '.join(_SETTINGS)}.")
        numbers = {**self.settings, "state_weight": self.state_weight, "gate": self.gate}
        for name, value in numbers.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not (0 <= value <= _LARGEST or (name in _UNBOUNDED and value == math.inf)):
                raise RetrievalError(f"The model's {name} must be a number from 0 to {_LARGEST:g}, not {value!r}.")

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # A pickle names the default model instead of copying it.
        return (default_model, ()) if self is default_model() else super().__reduce_ex__(protocol)

    @classmethod
    def load(cls, path: str | Path) -> RetrieverModel:
        """Open a model that `save` or `convcoa train` wrote; RetrievalError if there is no model or a checksum differs."""
        folder = Path(path)
        config = _read_config(folder)
        try:
            damaged = first_damaged(folder, config["files"])
            if damaged is not None:
                fault = f"{folder / damaged} is missing or is not what was saved (another SHA-256 than in {_CONFIG})"
                raise RetrievalError(f"The model is damaged: {fault}; copy or train it again.")
            parts = load_file(folder / _WEIGHTS) if config["state"] else {}
            card = (folder / _CARD).read_text(encoding="utf-8") if (folder / _CARD).exists() else ""
            return cls(
                state=StateWeights(*(parts[name].astype(np.float32) for name in _STATE_NAMES)) if config["state"] else None,
                query_encoder=QueryEncoder.load(folder / _QUERY_ENCODER) if config["tower"] else None,
                card=card,
                source=str(folder),
                **{name: config[name] for name in _PLAIN},
            )
        except (KeyError, OSError, SafetensorError, ValueError) as error:
            fault = f"The model {folder} lacks a part or cannot be read ({first_line(error)})"
            raise RetrievalError(f"{fault}; copy or train it again.") from error

    def save(self, path: str | Path) -> None:
        """Write the model to a folder, completely or not at all; a model that is already there is replaced.

        RetrievalError if the folder holds something else or cannot be written to.
        """
        folder = Path(path)
        check_model_folder(folder)
        config = {
            "format": _FORMAT,
            "version": _VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "settings": dict(self.settings),
            "state": self.state is not None,
            "tower": self.query_encoder is not None,
        }
        try:
            with replacing_folder(folder) as partial:
                if self.state is not None:
                    state = {name: getattr(self.state, name.partition(".")[2]) for name in _STATE_NAMES}
                    save_file({k: np.ascontiguousarray(v, dtype=np.float32) for k, v in state.items()}, partial / _WEIGHTS)
                if self.query_encoder is not None:
                    self.query_encoder.save(partial / _QUERY_ENCODER)
                if self.card:
                    (partial / _CARD).write_text(self.card, encoding="utf-8")
                # People may edit the card, so it has no checksum.
                config["files"] = {name: digest for name, digest in checksums(partial).items() if name != _CARD}
                (partial / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        except (OSError, SafetensorError) as error:
            raise RetrievalError(f"The model cannot be written to {folder}: {error}.") from error

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise RetrievalError if the model was not trained for this encoder; the encoder is loaded."""
        found = encoder_identity(encoder.name)
        if found != self.encoder:
            fault = f"{f'The model {self.source}'.rstrip()} was trained for the encoder {self.encoder!r}, not {found!r}"
            raise RetrievalError(f"{fault}; train one for this encoder, or use model='untrained'.")
        if self.state is not None and len(self.state.direct) != encoder.dimension:
            raise RetrievalError(
                f"The model is for vectors of length {len(self.state.direct)}, the encoder {found!r} gives "
                f"{encoder.dimension}; train it again."
            )


@cache
def default_model() -> RetrieverModel | None:
    """The model in the package, for the default encoder; None if the package was built without it."""
    folder = Path(__file__).parent / "default_model"
    return replace(RetrieverModel.load(folder), source=DEFAULT_MODEL) if (folder / _CONFIG).exists() else None


def model_for(model: RetrieverModel | str | None, encoder: Encoder) -> RetrieverModel | None:
    """Return the model that a name ("default", "untrained") means for an encoder; the encoder is not loaded.

    With None, only the default encoder has a model, the default model. "default" with another encoder raises InputError.
    """
    if isinstance(model, RetrieverModel):
        return model
    if model != UNTRAINED and is_default_encoder(encoder):
        return default_model()
    if model == DEFAULT_MODEL:
        raise InputError(f"The default model is for the default encoder, not {encoder!r}: train one, or model='untrained'.")
    return None


def encoder_identity(name: str) -> str:
    """An encoder's name without its dtype and length: a model does not depend on them."""
    return "|".join(part for part in name.split("|") if part not in _DTYPES and not part.isdigit())


def is_default_encoder(encoder: Encoder) -> bool:
    """True for all-MiniLM-L6-v2 of either dtype; nothing is loaded."""
    if isinstance(encoder, DelegatingEncoder):
        encoder = encoder.encoder
    return isinstance(encoder, SentenceTransformerEncoder) and encoder.model_name in DEFAULT_NAMES


def opened_model(model: RetrieverModel | str | Path | None, index: Path | None = None) -> RetrieverModel | str | None:
    """Load a model from a folder or an index. A name is returned unchanged, since its model depends on the encoder."""
    if model is None or isinstance(model, RetrieverModel) or model in (DEFAULT_MODEL, UNTRAINED):
        return model
    if not isinstance(model, str | Path):
        raise InputError(f"model must be 'default', 'untrained', a folder or a RetrieverModel, not {type(model).__name__}.")
    return RetrieverModel.load(index / MODEL_FOLDER if model == _BESIDE and index is not None else model)


def stated_model(model: RetrieverModel | str | Path | None) -> str | None:
    """The entry for a model in an index's settings: its name, "index:model" if it is saved with the index, or None."""
    if not isinstance(model, RetrieverModel):
        return None if model is None else str(model)
    # The default model is not saved with the index: the user who opens the index chooses a model.
    return None if model.source == DEFAULT_MODEL else _BESIDE


def check_model_folder(folder: str | Path) -> None:
    """Raise RetrievalError for a file, or a folder that holds other things than a model."""
    place = Path(folder)
    if place.name in ("", ".."):
        raise RetrievalError(f"The model cannot take the place of the folder {place}: name a folder inside it.")
    try:
        if place.exists() and (not place.is_dir() or (any(place.iterdir()) and not (place / _CONFIG).is_file())):
            raise RetrievalError(f"{place} holds other files; name an empty folder for the model, or one with a model.")
    except OSError as error:
        raise RetrievalError(f"The folder {place} cannot be used for a model: {error.strerror}.") from error


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{folder} holds no model of a retriever ({path.name}: {error.strerror})"
        raise RetrievalError(f"{reason}; train one: convcoa train DATA --out {folder}.") from error
    except (ValueError, RecursionError) as error:
        raise RetrievalError(f"{path} is damaged ({error}); copy the model again, or train it again.") from error
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        raise RetrievalError(f"{folder} holds no model of a retriever; name a folder that convcoa train made.")
    if config.get("version") != _VERSION:
        found = f"is of version {config.get('version')}, this library reads {_VERSION}"
        raise RetrievalError(f"The model {folder} {found}; train it again, or update the library.")
    for name, part in _REMOVED.items():
        if config.get(name):
            raise RetrievalError(f"The model {folder} was trained with {part}, which were removed; train it again.")
    kinds: dict[str, type | tuple[type, ...]] = {
        "encoder": str, "settings": dict, "state": bool, "tower": bool,
        "state_weight": (int, float), "gate": (int, float), "files": dict,
    }  # fmt: skip
    for name, kind in kinds.items():
        if not isinstance(config.get(name), kind):
            raise RetrievalError(f"{path} has no usable {name!r}; copy or train the model again.")
    return config
