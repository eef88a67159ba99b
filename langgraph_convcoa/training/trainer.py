"""Training with transformers' `Trainer`: settings, checkpoints, Ctrl-C, and the saving of a retriever's model."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError, check_least, first_line, require
from langgraph_convcoa.files import replacing
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.progress import Progress, interruptions, track
from langgraph_convcoa.retrieval.query.model import RetrieverModel, check_model_folder
from langgraph_convcoa.training.data import TrainingData

Module = TypeVar("Module", bound=nn.Module)
Item = TypeVar("Item")
Batches = Callable[[int, np.random.Generator], Sequence[Sequence[int]]]
"""The batches of an epoch: (number of the epoch, random numbers) -> lists of indexes of items."""

_SETTINGS = "training.json"
_FREE = ("command", "checkpoint_every")  # Settings that may change when a training is resumed.


@dataclass(frozen=True)
class TrainingSettings:
    """Length and speed of a training."""

    epochs: int = 1
    steps: int | None = None  # Number of batches, instead of `epochs`.
    batch_size: int = 32
    learning_rate: float = 5e-5  # The highest learning rate of AdamW.
    warmup: float = 0.1  # Share of the steps in which the rate grows from 0; then it falls linearly to 0.
    weight_decay: float = 0.0  # Decay of matrices; vectors and single numbers have no decay.
    seed: int = 0  # Seed of the order of the data and of dropout.
    checkpoint_every: int = 100  # Steps between two checkpoints.

    def __post_init__(self) -> None:
        check_least(self, epochs=1, steps=1, batch_size=1, checkpoint_every=1, weight_decay=0, seed=0)
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate must be a number above 0, not {self.learning_rate}.")
        if not 0 <= self.warmup <= 1:
            raise InputError(f"warmup must be from 0 to 1, not {self.warmup}.")


@dataclass(frozen=True)
class Unfinished:
    """The folder of an unfinished training."""

    folder: Path

    @classmethod
    def beside(cls, out: str | Path) -> Unfinished:
        """The folder beside the folder of the model."""
        place = Path(out)
        return cls(place.with_name(f"{place.resolve().name}.training"))

    @property
    def checkpoint(self) -> Path | None:
        """The last complete checkpoint, or None. A complete checkpoint has the trainer's state, which is written last."""
        found = [state.parent for state in self.folder.glob("checkpoint-*/trainer_state.json")]
        return max(found, key=lambda place: int(place.name.rpartition("-")[2]), default=None)

    def check(self, *, resume: bool) -> None:
        """Raise InputError if the folder has a checkpoint and `resume` is False, or if it is not the folder of a training."""
        if self.checkpoint is not None and not resume:
            raise InputError(f"{self.folder} holds an unfinished training: resume it (--resume), or delete it to start again.")
        if self.folder.exists() and not (self.folder / _SETTINGS).is_file():
            raise InputError(f"{self.folder} is not the folder of a training: move it, or name another --out.")
        with writable(self.folder):
            self.folder.parent.mkdir(parents=True, exist_ok=True)

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> str | None:
        """Write the settings of a new training, or compare them with the settings of the training to resume.

        Returns the checkpoint for `Trainer.train`, None for a new training. Raises InputError if a setting differs.
        """
        self.check(resume=resume)
        given: dict[str, Any] = json.loads(json.dumps(settings, default=str))
        path, checkpoint = self.folder / _SETTINGS, self.checkpoint
        if checkpoint is not None:
            try:
                known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise RetrievalError(f"{path} is damaged: delete {path.parent} to start again.") from error
            for name in sorted((known.keys() | given.keys()) - set(_FREE)):
                then, now = known.get(name), given.get(name)
                if then != now:
                    raise InputError(
                        f"The training in {self.folder} was started with {name} = {then!r}, not {now!r}: give the same, or "
                        "delete the folder to start again."
                    )
            return str(checkpoint)
        self.remove()
        with writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_text(json.dumps(given, indent=2) + "\n", encoding="utf-8")
        return None

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def writable(folder: str | Path) -> Iterator[None]:
    """Raise RetrievalError if the block cannot write to a folder."""
    try:
        yield
    except ConvCoAError:
        raise
    # On a full disk, torch raises RuntimeError, and safetensors and tokenizers have errors of their own.
    except Exception as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise RetrievalError(f"{folder} cannot be written ({reason}): free space or name another folder.") from error


def train(
    module: Module,
    loss: Callable[[Module, Sequence[Item]], Tensor],
    items: Sequence[Item],
    settings: TrainingSettings,
    *,
    unfinished: Unfinished | None = None,
    resume: bool = False,
    about: Mapping[str, Any] | None = None,
    batches: Batches | None = None,
    rates: Mapping[str, float] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    logs: str | Path | None = None,
    progress: Progress = False,
    device: str | None = None,
) -> list[float]:
    """Minimise a loss over the parameters of a module that require a gradient; returns the loss of each step.

    A training that was stopped and resumed ends with the same weights as one without a stop. The module is in evaluation mode
    afterwards. `unfinished` is the folder of checkpoints, which the caller removes; without it, nothing is written. `about`
    has further values that must be equal when the training is resumed. `rates` are factors on the learning rate of
    parameters, by the beginning of their names. `device` is "cpu" or "cuda"; None chooses.

    Raises:
        InputError: There is nothing to train or to train on, or the checkpoint is of another training.
        RetrievalError: The loss is NaN or infinite, or a checkpoint cannot be read or written.
        KeyboardInterrupt: Ctrl-C, after the current step and its checkpoint.
    """
    check_packages(logs)
    if not items:
        raise InputError("There is nothing to train on: the data has no example of this kind.")
    if device is not None and ":" in device:
        raise InputError(f"The device {device} cannot be chosen here: set CUDA_VISIBLE_DEVICES, and name cuda.")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InputError("There is nothing to train: every parameter of the model is frozen.")
    order = _order(items, settings, batches)
    known = asdict(settings) | {"examples": len(items)} | dict(about or {})
    checkpoint = None if unfinished is None else unfinished.begin(known, resume=resume)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch if unfinished is None else str(unfinished.folder),
            max_steps=len(order),
            per_device_train_batch_size=1,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=math.ceil(settings.warmup * len(order)),
            seed=settings.seed,
            save_strategy="no" if unfinished is None else "steps",
            save_steps=settings.checkpoint_every,
            save_total_limit=1,
            logging_steps=10,
            report_to=[],
            log_level="error",
            use_cpu=device == "cpu",
        )
        # A module without tensors as inputs cannot be replicated by `DataParallel`.
        arguments._n_gpu = min(1, arguments.n_gpu)
        wrapped = _WithLoss(module, loss)
        trainer = _Trainer(
            model=wrapped,
            args=arguments,
            train_dataset=[[items[number] for number in batch] for batch in order],
            optimizers=(_optimizer(module, settings, rates or {}), None),
            callbacks=[*callbacks, *board(logs)],
        )
        run(trainer, checkpoint, progress)
    module.eval()
    return wrapped.losses


@dataclass(frozen=True)
class TrainingJob:
    """Where a trained model is saved, and how its training runs."""

    out: str | Path | None = None  # Folder for the model, with checkpoints beside it. If None, the model is only returned.
    resume: bool = False  # Resume an unfinished training into `out`.
    device: str | None = None  # "cpu", "cuda", ...; chosen when None.
    logs: str | Path | None = None  # Folder for TensorBoard.
    cache: PatternCache | None = None  # Cache of vectors between runs.
    progress: Progress = False
    command: str = ""  # Command for the model's card; no card is written without it.

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `train` that the job sets."""
        unfinished = None if self.out is None else Unfinished.beside(self.out)
        return {name: getattr(self, name) for name in ("resume", "device", "logs", "progress")} | {"unfinished": unfinished}

    def check(self) -> None:
        """Check the packages and the folders before anything is read or encoded."""
        check_packages(self.logs)
        if self.out is not None:
            check_model_folder(self.out)
            Unfinished.beside(self.out).check(resume=self.resume)

    def finish(self, model: RetrieverModel, data: TrainingData | None, single_turn: Sequence[Dataset]) -> RetrieverModel:
        """Save the model with a card, and remove the checkpoints."""
        if self.command:
            sources = (data.sources if data is not None else {}) | {one.name: len(one.queries) for one in single_turn}
            model = replace(model, card=model_card(model, sources, self.command))
        if self.out is not None:
            from accelerate import PartialState

            if PartialState().is_main_process:
                model.save(self.out)
                Unfinished.beside(self.out).remove()
        return model


def model_parts(model: RetrieverModel) -> dict[str, str]:
    """The trained parts of a model: short name -> description."""
    parts = (
        ("state", model.state, "projections and a gate of the conversation state"),
        ("query encoder", model.query_encoder, "a query encoder, as 8-bit differences from the encoder"),
    )
    return {name: description for name, part, description in parts if part is not None}


def model_card(model: RetrieverModel, sources: Mapping[str, int], command: str) -> str:
    """A card in Markdown, to which its owner adds licences and measured numbers."""
    rows = "\n".join(f"| {name} | {count:,} |" for name, count in sources.items())
    return f"""# A retriever model of langgraph_convcoa

It holds {", ".join(model_parts(model).values()) or "settings alone"}, for passages encoded by `{model.encoder}`.

| trained on | questions |
|---|---:|
{rows}

The split `dev` of the data was left out; without such a split, a fifth of the conversations (by a hash of their ids).

    {command}

Measure it on conversations of your own before you rely on it: `convcoa evaluate retrieval DATA --model DIR`.
"""


def without_training(settings: Any) -> dict[str, Any]:
    """The fields of a settings dataclass except `training`, which `train` compares itself."""
    return {name: value for name, value in asdict(settings).items() if name != "training"}


def check_packages(logs: object = None) -> None:
    """Raise InputError if a package of the extra `train` is missing."""
    require("training", "train", "accelerate", *(["tensorboard"] if logs is not None else []))


def board(logs: str | Path | None) -> list[TrainerCallback]:
    """The callback that writes logs for TensorBoard; [] without a folder."""
    if logs is None:
        return []
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    with writable(logs):
        return [TensorBoardCallback(SummaryWriter(str(logs)))]  # type: ignore[no-untyped-call]


def run(trainer: Trainer, checkpoint: str | None, progress: Progress) -> None:
    """Train, with a progress bar; Ctrl-C ends the training after the current step, with a checkpoint."""
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    with interruptions() as interrupted, track(progress, trainer.args.max_steps, "Training") as advance:

        class Watch(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                advance(state.global_step)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                advance(1)
                if interrupted():
                    control.should_save = args.save_strategy != "no"
                    control.should_training_stop = True

        trainer.add_callback(Watch())
        trainer.train(resume_from_checkpoint=checkpoint)


class _Trainer(Trainer):
    """A `Trainer` that keeps the given order of the batches."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        loader = DataLoader(self.train_dataset, batch_size=1, collate_fn=lambda batches: {"items": batches[0]})  # type: ignore[arg-type]
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def _save_checkpoint(self, *given: Any, **named: Any) -> None:
        with writable(str(self.args.output_dir)):
            super()._save_checkpoint(*given, **named)


class _WithLoss(nn.Module):
    """A module whose output is its loss, as `Trainer` requires."""

    def __init__(self, module: nn.Module, loss: Callable[[Any, Sequence[Any]], Tensor]) -> None:
        super().__init__()
        self.module, self.loss = module, loss
        self.losses: list[float] = []

    def forward(self, items: Sequence[Any]) -> dict[str, Tensor]:
        loss = self.loss(self.module, items)
        number = float(loss.detach())
        if not math.isfinite(number):
            raise RetrievalError(f"The loss is {number} after {len(self.losses)} steps: lower the learning rate.")
        self.losses.append(number)
        return {"loss": loss}


def _order(items: Sequence[Any], settings: TrainingSettings, batches: Batches | None) -> list[Sequence[int]]:

    def shuffled(_epoch: int, random: np.random.Generator) -> list[list[int]]:
        order, size = random.permutation(len(items)).tolist(), settings.batch_size
        return [order[start : start + size] for start in range(0, len(order), size)]

    found: list[Sequence[int]] = []
    epoch = 0
    while epoch < settings.epochs if settings.steps is None else len(found) < settings.steps:
        drawn = (batches or shuffled)(epoch, np.random.default_rng([settings.seed, epoch]))
        if not drawn:
            raise InputError("There is nothing to train on: no batch could be made of the examples.")
        found += drawn
        epoch += 1
    return found[: settings.steps]


def _optimizer(module: nn.Module, settings: TrainingSettings, rates: Mapping[str, float]) -> torch.optim.Optimizer:
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            start = max((start for start in rates if name.startswith(start)), key=len, default="")
            decay = settings.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rates.get(start, 1.0), decay), []).append(parameter)
    rate = settings.learning_rate
    options = [{"params": group, "lr": factor * rate, "weight_decay": decay} for (factor, decay), group in groups.items()]
    return torch.optim.AdamW(options, lr=rate)
