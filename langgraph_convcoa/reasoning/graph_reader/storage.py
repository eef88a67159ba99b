"""A trained reader as a folder: what was learned, as safetensors, and its settings; the language model stays where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.files import replacing_folder, trained_config
from langgraph_convcoa.reasoning.graph_reader.model import GraphReaderModel, ReaderSettings

_CONFIG, _WEIGHTS, _FORMAT, _VERSION = "reader.json", "reader.safetensors", "langgraph_convcoa graph reader", 1


def check_reader_folder(folder: str | Path) -> None:
    """Raise ModelError where a folder can hold no reader, since it is a file or holds other things."""
    place = Path(folder)
    if place.name in ("", "..") or (place.exists() and not place.is_dir()):
        raise ModelError(f"A reader cannot be written to {place}: name a folder for it.")
    if place.is_dir() and any(place.iterdir()) and not (place / _CONFIG).is_file():
        raise ModelError(f"{place} holds other files; name an empty folder for the reader, or one with a reader.")


def save_reader(model: GraphReaderModel, folder: str | Path, *, base: str, told: dict[str, Any] | None = None) -> None:
    """Write a reader, in place of the one that is there, all at once or not at all.

    Args:
        model: The reader.
        folder: Its folder.
        base: Name or folder of the language model, which is not copied.
        told: What else is to stand in `reader.json`, such as how it was trained.

    Raises:
        ModelError: The folder holds other things, or cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    check_reader_folder(folder)
    learned = {name: one.detach().cpu().clone().contiguous() for name, one in trained_weights(model).items()}
    # A folder is found from anywhere.
    where = str(Path(base).resolve()) if Path(base).is_dir() else base
    config = {
        "format": _FORMAT,
        "version": _VERSION,
        "base": where,
        "shape": model.shape,
        "settings": model.told,
        **(told or {}),
    }
    try:
        with replacing_folder(folder) as partial:
            save_file(learned, partial / _WEIGHTS)
            (partial / _CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"The reader cannot be written to {folder} ({reason}): name another folder.") from error


def load_reader(folder: str | Path, *, base: str | None = None, device: str | None = None) -> GraphReaderModel:
    """Read a reader that `convcoa train-reader` made.

    Args:
        folder: The reader's folder.
        base: The language model, where it is no longer where it was.
        device: "cpu", "cuda", ...

    Raises:
        ModelError: There is no reader, it is damaged or of another version, its language model cannot be loaded or is
            another one, or a package is missing.
    """
    place = Path(folder)
    config, settings = _config(place)
    model = GraphReaderModel.of(base or config["base"], settings)
    if model.shape != config["shape"]:
        raise ModelError(
            f"The reader {place} was trained on a model of {config['shape']}, not {model.shape}: name that model."
        )
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        learned = load_file(place / _WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{place / _WEIGHTS} is missing or damaged: copy or train the reader again.") from error
    wanted = trained_weights(model)
    if {name: one.shape for name, one in wanted.items()} != {name: one.shape for name, one in learned.items()}:
        raise ModelError(f"{place / _WEIGHTS} does not fit {place / _CONFIG}: copy or train the reader again.")
    with torch.no_grad():
        for name, one in wanted.items():
            one.copy_(learned[name])
    return model.to(device) if device else model


def trained_weights(model: GraphReaderModel) -> dict[str, Any]:
    """What is learned of a reader, by name."""
    return {name: one for name, one in model.named_parameters() if one.requires_grad}


def _config(place: Path) -> tuple[dict[str, Any], ReaderSettings]:
    command = "convcoa train-reader DATA --model NAME"
    config = trained_config(place / _CONFIG, _FORMAT, _VERSION, ModelError, "reader", command)
    base, shape, told = (config.get(name) for name in ("base", "shape", "settings"))
    try:
        if not isinstance(base, str) or not isinstance(shape, dict) or not isinstance(told, dict):
            raise TypeError("base, shape or settings")
        for name, value in told.items():
            kind = type(ReaderSettings.__dataclass_fields__[name].default)
            if type(value) is not kind and (kind, type(value)) != (float, int):
                raise TypeError(name)
        return config, ReaderSettings(**told)
    except (KeyError, TypeError, InputError) as error:
        raise ModelError(f"{place / _CONFIG} is damaged ({error}): copy or train the reader again.") from error
