"""Checkpoints: the state of an unfinished training in one file, weights, optimizer and progress, as safetensors and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.files import replacing

_VERSION = 2
_KEY = "convcoa_training"


@dataclass
class TrainingState:
    """How far a training is."""

    step: int = 0
    seconds: float = 0.0  # Evaluations left out.
    settings: dict[str, Any] = field(default_factory=dict)  # As at the start; it is resumed with the same only.
    evaluations: list[tuple[int, float, float]] = field(default_factory=list)  # (step, seconds, score) of each.
    losses: dict[str, float] = field(default_factory=dict)  # Sums since last logged, under "steps" of how many steps.


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def check_resumed(checkpoint: Path, *, resume: bool) -> None:
    """Raise InputError where an unfinished training is there that is not to be resumed."""
    if checkpoint.exists() and not resume:
        raise InputError(f"{checkpoint} holds an unfinished training: resume it (--resume), or delete it to start again.")


def save_checkpoint(path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    """Write the state of a training, in place of the one that is there, all at once or not at all.

    Frozen parameters are not in it: whoever resumes has them from where they came.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    parameters = trained_parameters(module)
    tensors = {f"weights.{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value)
    # Copies, since safetensors takes no two tensors over one memory.
    copies = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        with replacing(path) as temporary:
            save_file(copies, temporary, metadata={_KEY: json.dumps({"version": _VERSION, **vars(state)})})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RetrievalError(
            f"The checkpoint {path} cannot be written ({reason}): free space or name another folder."
        ) from error


def load_checkpoint(
    path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> TrainingState:
    """Put the state of a training back into its module and optimizer, made as they were then.

    Raises:
        InputError: The checkpoint is of a run with other settings, data or shapes; the first difference is named.
        RetrievalError: The file cannot be read, is damaged, is no checkpoint or of another version.
    """
    state, tensors = _read(path)
    # Through JSON, so that tuples and lists are alike.
    given = json.loads(json.dumps(settings))
    for name in sorted(state.settings.keys() | given.keys()):
        if state.settings.get(name) != given.get(name):
            raise InputError(
                f"The checkpoint {path} was started with {name} = {state.settings.get(name)!r}, not {given.get(name)!r}: "
                "give the same, or delete it to start again."
            )
    parameters = trained_parameters(module)
    saved = {name.removeprefix("weights."): tensor for name, tensor in tensors.items() if name.startswith("weights.")}
    for name in sorted(saved.keys() | parameters.keys()):
        there, here = (tuple(known[name].shape) if name in known else "none" for known in (saved, parameters))
        if there != here:
            raise InputError(
                f"The checkpoint {path} is of another model: {name} has shape {there} there and {here} here; "
                "give the settings that it was started with, or delete it to start again."
            )
    moments: dict[nn.Parameter, dict[str, Tensor]] = {}
    for full_name, tensor in tensors.items():
        kind, _, rest = full_name.partition(".")
        if kind == "optimizer":
            key, _, name = rest.partition(".")
            moments.setdefault(parameters[name], {})[key] = tensor
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved[name])
    places = {parameter: number for number, parameter in enumerate(p for g in optimizer.param_groups for p in g["params"])}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": {places[p]: values for p, values in moments.items()}, "param_groups": groups})
    return state


def _read(path: Path) -> tuple[TrainingState, dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as stream:
            header = json.loads((stream.metadata() or {}).get(_KEY, "null"))
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 -- no mapping
    except (OSError, SafetensorError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RetrievalError(f"The checkpoint {path} cannot be read ({reason}): delete it to start again.") from None
    if not isinstance(header, dict):
        raise RetrievalError(f"{path} is no checkpoint of a training: name another folder, or delete it to start again.")
    version = header.pop("version", None)
    if version != _VERSION:
        raise RetrievalError(f"The checkpoint {path} is of version {version}, not {_VERSION}: delete it to start again.")
    header["evaluations"] = [(int(step), seconds, score) for step, seconds, score in header["evaluations"]]
    return TrainingState(**header), tensors
