"""The state of an unfinished training in one file: weights, optimizer and place, as safetensors and JSON."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.query.model import RetrieverModel, check_model_folder

_VERSION = 1
_KEY = "convcoa_training"


@dataclass
class Place:
    """Where a training stands.

    Attributes:
        step: How many steps were taken.
        seconds: How long they took, evaluations left out.
        settings: What the training was started with; another run goes on only with the same.
        evaluations: Measures taken on the way, as (step, seconds, score).
        losses: Sums of the parts of the loss since they were last logged, and under "steps" of how many steps.
        best: Step of the best score, or None.
    """

    step: int = 0
    seconds: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    evaluations: list[tuple[int, float, float]] = field(default_factory=list)
    losses: dict[str, float] = field(default_factory=dict)
    best: int | None = None


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def save_checkpoint(
    path: str | Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    place: Place,
    best: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the state of a training, in place of the one that is there, all at once or not at all.

    Frozen parameters are not in it: whoever goes on has them from where they came.

    Args:
        path: The file; its folder is made when missing.
        module: What is trained.
        optimizer: Over the parameters of `trained_parameters`, in any grouping.
        place: Where the training stands.
        best: The weights of the best evaluation, where they are kept.

    Raises:
        RetrievalError: The file cannot be written.
    """
    from safetensors.torch import save_file

    parameters = trained_parameters(module)
    tensors = {f"weights.{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value)
    tensors |= {f"best.{name}": tensor for name, tensor in (best or {}).items()}
    # Copies, since safetensors takes no two tensors over one memory.
    copies = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
    header = {_KEY: json.dumps({"version": _VERSION, **vars(place)})}
    target = Path(path)
    scratch = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(handle)
        save_file(copies, scratch, metadata=header)
        with Path(scratch).open("rb") as stream:
            os.fsync(stream.fileno())
        Path(scratch).replace(target)
    except OSError as error:
        raise RetrievalError(
            f"The checkpoint {target} cannot be written ({error.strerror or error}): free space or name another folder."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            Path(scratch).unlink()


def load_checkpoint(
    path: str | Path, module: nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> tuple[Place, dict[str, Tensor]]:
    """Put the state of a training back into its module and optimizer.

    Args:
        path: A file of `save_checkpoint`.
        module: What is trained, made as it was then.
        optimizer: Made as it was then.
        settings: What this run was started with, as JSON values.

    Returns:
        Where the training stood, and the weights of its best evaluation, empty where none were kept.

    Raises:
        InputError: The checkpoint is of a run with other settings, data or shapes; the first difference is named.
        RetrievalError: The file cannot be read, is damaged, is no checkpoint or of another version.
    """
    place, tensors = _read(Path(path))
    _check_settings(Path(path), place.settings, settings)
    parameters = trained_parameters(module)
    saved = {name.removeprefix("weights."): tensor for name, tensor in tensors.items() if name.startswith("weights.")}
    shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    for name in sorted(shapes.keys() | parameters.keys()):
        here = tuple(parameters[name].shape) if name in parameters else None
        if shapes.get(name) != here:
            raise InputError(
                f"The checkpoint {path} is of another model: {name} has shape {shapes.get(name, 'none')} there and "
                f"{here or 'none'} here; give the settings that it was started with, or delete it to start anew."
            )
    state: dict[nn.Parameter, dict[str, Tensor]] = {}
    best: dict[str, Tensor] = {}
    for full_name, tensor in tensors.items():
        kind, _, rest = full_name.partition(".")
        if kind == "best":
            best[rest] = tensor
        elif kind == "optimizer":
            key, _, name = rest.partition(".")
            state.setdefault(parameters[name], {})[key] = tensor
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved[name])
    places = {parameter: number for number, parameter in enumerate(p for g in optimizer.param_groups for p in g["params"])}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": {places[p]: values for p, values in state.items()}, "param_groups": groups})
    return place, best


def training_checkpoint(out: str | Path) -> Path:
    """Where the state of an unfinished training of a model is kept: beside the model's folder.

    Example:
        >>> training_checkpoint("models/mine").name
        'mine.training.safetensors'
    """
    folder = Path(out)
    return folder.with_name(f"{folder.resolve().name}.training.safetensors")


def startable_checkpoint(out: str | Path, *, resume: bool) -> Path:
    """`training_checkpoint` of a folder that a model can be trained into, told before anything is encoded.

    Args:
        out: Folder for the model.
        resume: Whether an unfinished training is to be gone on with.

    Raises:
        InputError: An unfinished training is there and not to be resumed.
        RetrievalError: The folder holds something else than a model, or cannot be written.
    """
    check_model_folder(out)
    checkpoint = training_checkpoint(out)
    check_resumed(checkpoint, resume=resume)
    try:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=checkpoint.parent):
            pass
    except OSError as error:
        raise RetrievalError(
            f"The model cannot be written into {checkpoint.parent} ({error.strerror or error}): name another folder."
        ) from error
    return checkpoint


def check_resumed(checkpoint: Path, *, resume: bool) -> None:
    """Raise InputError where an unfinished training is there that is not to be gone on with."""
    if checkpoint.exists() and not resume:
        raise InputError(f"{checkpoint} holds an unfinished training: resume it (--resume), or delete it to start anew.")


def save_trained(model: RetrieverModel, out: str | Path, checkpoint: Path) -> None:
    """Write the model and drop the state of its training, by one of the processes that trained it; the others wait.

    Raises:
        RetrievalError: The model cannot be written.
    """
    from accelerate import PartialState

    processes = PartialState()
    if processes.is_main_process:
        model.save(out)
        discard_checkpoint(checkpoint)
    processes.wait_for_everyone()


def discard_checkpoint(path: str | Path) -> None:
    """Remove the checkpoint of a training whose model is saved."""
    Path(path).unlink(missing_ok=True)


def _read(path: Path) -> tuple[Place, dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as stream:
            header = json.loads((stream.metadata() or {}).get(_KEY, "null"))
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 -- no mapping
    except (OSError, SafetensorError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RetrievalError(f"The checkpoint {path} cannot be read ({reason}): delete it to start anew.") from None
    if not isinstance(header, dict):
        raise RetrievalError(f"{path} is no checkpoint of a training: name another folder, or delete it to start anew.")
    version = header.pop("version", None)
    if version != _VERSION:
        raise RetrievalError(f"The checkpoint {path} is of version {version}, not {_VERSION}: delete it to start anew.")
    header["evaluations"] = [(int(step), seconds, score) for step, seconds, score in header["evaluations"]]
    return Place(**header), tensors


def _check_settings(path: Path, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    # Through JSON, so that tuples and lists are alike.
    given = json.loads(json.dumps(given))
    for name in sorted(saved.keys() | given.keys()):
        if saved.get(name) != given.get(name):
            raise InputError(
                f"The checkpoint {path} was started with {name} = {saved.get(name)!r}, not {given.get(name)!r}: "
                "give the same, or delete it to start anew."
            )
