"""The training loop of the head, the query encoder and the whole encoder, and its settings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Generic, Literal

import numpy as np
import torch
from torch import nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.training.loop.checkpoints import (
    TrainingState,
    check_resumed,
    load_checkpoint,
    save_checkpoint,
    trained_parameters,
)
from langgraph_convcoa.training.loop.gradient_cache import Item, Module, Objective, backward
from langgraph_convcoa.training.loop.interruption import interruptions

if TYPE_CHECKING:
    from accelerate import PartialState

Batches = Callable[[int, np.random.Generator], Sequence[Sequence[int]]]
"""The batches of an epoch: lists of numbers of items, from the number of the epoch and the random numbers to use."""


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how fast to train."""

    epochs: int = 1
    steps: int | None = None  # How many batches, in place of `epochs`.
    batch_size: int = 32  # Items a step, over all devices together.
    chunk: int | None = None  # Items encoded at a time, with gradient caching; the whole batch when None.
    learning_rate: float = 5e-5  # Of AdamW, at its highest.
    warmup: float = 0.1  # Share of the steps in which the rate rises from 0; it then falls to 0 in a line.
    weight_decay: float = 0.0  # Of matrices; vectors and numbers have none.
    clip: float = 1.0  # Largest length of the gradient.
    mixed_precision: Literal["no", "bf16"] = "no"  # "bf16" encodes in bfloat16; weights and loss are float32 either way.
    seed: int = 0  # Of the order of the data and of dropout.
    checkpoint_every: int = 100  # Steps between two checkpoints; none are written when 0, nor at Ctrl-C.
    evaluate_every: int | None = None  # Steps between two evaluations; one at the end when None.

    def __post_init__(self) -> None:
        whole = dict.fromkeys(("epochs", "steps", "batch_size", "chunk", "evaluate_every"), 1)
        for name, least in (whole | {"weight_decay": 0, "checkpoint_every": 0, "seed": 0}).items():
            number = getattr(self, name)
            if number is not None and not least <= number < math.inf:
                raise InputError(f"{name} must be at least {least}, not {number}.")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be a number above 0, not {getattr(self, name)}.")
        if not 0 <= self.warmup <= 1:
            raise InputError(f"warmup must be from 0 to 1, not {self.warmup}.")


def train(
    module: Module,
    objective: Objective[Module, Item],
    items: Sequence[Item],
    settings: TrainingSettings,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    fingerprint: str = "",
    batches: Batches | None = None,
    rates: Mapping[str, float] | None = None,
    evaluate: Callable[[Module], float] | None = None,
    logs: str | Path | None = None,
    progress: Progress = False,
    device: str | torch.device | None = None,
) -> TrainingState:
    """Minimise an objective over the parameters of a module that ask for a gradient.

    A run that is interrupted and resumed ends with the same weights as one that was not, on a CPU bit by bit: the order of the
    data and every random number come from the seed and the step. Started by `accelerate launch` on several devices, each has
    its share of every batch, negatives included, and the gradients are averaged.

    Args:
        module: What is trained; moved to the device, and back in evaluation mode afterwards.
        objective: Vectors of items, and the loss of a batch.
        items: What is trained on.
        settings: How long and how fast.
        checkpoint: File for the state of the run, written as `settings` says and at Ctrl-C; the caller removes it once the
            model is saved. None is written without.
        resume: Resume from that file where it is there.
        fingerprint: Of the data and of what is frozen; a run is only resumed with the same.
        batches: The batches of an epoch; shuffled items cut into batches, the last of them smaller, when None.
        rates: Factors on the learning rate of parameters whose names start so; the longest such start counts.
        evaluate: A score of the module, taken without gradients every `evaluate_every` steps.
        logs: Folder for TensorBoard.
        progress: A bar, a callback or nothing.
        device: "cpu", "cuda", ...; what accelerate finds when None.

    Raises:
        InputError: There is nothing to train or to train on, or the checkpoint is not to be resumed, or of another run.
        RetrievalError: The loss is NaN or infinite, the checkpoint is damaged or cannot be written, or a package is missing.
        KeyboardInterrupt: Ctrl-C, after the step under way and its checkpoint.
    """
    if not items:
        raise InputError("There is nothing to train on: the data has no example of this kind.")
    if not trained_parameters(module):
        raise InputError("There is nothing to train: every parameter of the model is frozen.")
    if checkpoint is not None:
        check_resumed(checkpoint, resume=resume)
    run = _Run(module, objective, items, settings, batches, rates or {}, evaluate, device)
    # What a run must have in common with the one that it resumes.
    shared = dataclasses.asdict(settings) | {"examples": len(items), "data": fingerprint, "rates": dict(rates or {})}
    del shared["checkpoint_every"]
    if checkpoint is not None and checkpoint.exists():
        run.state = load_checkpoint(checkpoint, module, run.optimizer, shared)
    run.state.settings = shared
    devices = [run.device] if run.device.type == "cuda" else []
    writing = logs if run.processes.is_main_process else None
    with _writer(writing, run.state.step) as log, torch.random.fork_rng(devices):
        run.go(checkpoint, log, progress)
    module.eval()
    return run.state


def schedule(step: int, total: int, warmup: float) -> float:
    """The factor on the learning rate: up in a line from 0, then down in a line to 0."""
    rising = math.ceil(warmup * total)
    return (step + 1) / rising if step < rising else (total - step) / max(1, total - rising)


@dataclass
class _Run(Generic[Module, Item]):
    """One training under way."""

    module: Module
    objective: Objective[Module, Item]
    items: Sequence[Item]
    settings: TrainingSettings
    batches: Batches | None
    rates: Mapping[str, float]
    evaluate: Callable[[Module], float] | None
    given_device: str | torch.device | None

    def __post_init__(self) -> None:
        self.processes = processes_of_training()
        self.device = self.processes.device if self.given_device is None else torch.device(self.given_device)
        self.module = self.module.to(self.device)
        self.optimizer = _optimizer(self.module, self.settings, self.rates)
        self.epoch = self.batches or self._shuffled
        self.total = self.settings.steps or self.settings.epochs * len(self.epoch(0, self._random(0)))
        self.state = TrainingState()

    def go(self, path: Path | None, log: Callable[[str, float, int], None], progress: Progress) -> None:
        every = self.settings.checkpoint_every if self.processes.is_main_process else 0
        if self.processes.num_processes > 1:
            from accelerate.utils import broadcast

            with torch.no_grad():
                for parameter in self.module.parameters():
                    parameter.copy_(broadcast(parameter.data))
        with interruptions() as interrupted, track(progress, self.total, "Training") as advance:
            advance(self.state.step)
            for batch in self._remaining():
                begin = perf_counter()
                self._step(batch)
                self.state.seconds += perf_counter() - begin
                self._log(log)
                self._measure(log)
                stop, step = interrupted(), self.state.step
                if every and path is not None and (stop or step % every == 0 or step == self.total):
                    save_checkpoint(path, self.module, self.optimizer, self.state)
                advance(1)
                if stop:
                    break

    def _step(self, batch: Sequence[int]) -> None:
        settings, step = self.settings, self.state.step
        self.module.train()
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * group["scale"] * schedule(step, self.total, settings.warmup)
        self.optimizer.zero_grad(set_to_none=True)
        rank, world = self.processes.process_index, self.processes.num_processes
        share = batch[rank::world] if len(batch) >= world else batch
        losses = backward(
            self.module,
            self.objective,
            [self.items[number] for number in share],
            chunk=settings.chunk,
            seed=(settings.seed, step, rank),
            autocast=lambda: torch.autocast(self.device.type, torch.bfloat16, enabled=settings.mixed_precision == "bf16"),
        )
        parameters = list(trained_parameters(self.module).values())
        if world > 1:
            from accelerate.utils import reduce

            for parameter in parameters:
                parameter.grad = reduce(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad, "mean")
        length = torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        if not (math.isfinite(sum(losses.values())) and bool(torch.isfinite(length))):
            raise RetrievalError(f"The loss or its gradient is NaN or infinite at step {step + 1}: lower the learning rate.")
        self.optimizer.step()
        for name, value in {**losses, "steps": 1.0}.items():
            self.state.losses[name] = self.state.losses.get(name, 0.0) + value
        self.state.step += 1

    def _measure(self, log: Callable[[str, float, int], None]) -> None:
        step, every = self.state.step, self.settings.evaluate_every
        if self.evaluate is None or not (step == self.total or (every and step % every == 0)):
            return
        self.module.eval()
        with torch.no_grad():
            score = float(self.evaluate(self.module))
        self.state.evaluations.append((step, self.state.seconds, score))
        log("score", score, step)

    def _log(self, log: Callable[[str, float, int], None]) -> None:
        steps = self.state.losses["steps"]
        if steps < 10 and self.state.step < self.total:
            return
        for name, value in self.state.losses.items():
            if name != "steps":
                log(f"loss/{name}", value / steps, self.state.step)
        log("learning_rate", self.optimizer.param_groups[0]["lr"], self.state.step)
        self.state.losses = {}

    def _remaining(self) -> Iterator[Sequence[int]]:
        """The batches of the run, epoch after epoch, from where it stands."""
        number, epoch = 0, 0
        while number < self.total:
            chosen = self.epoch(epoch, self._random(epoch))
            if not chosen:
                raise InputError("There is nothing to train on: no batch could be made of the examples.")
            for batch in chosen:
                if self.state.step <= number < self.total:
                    yield batch
                number += 1
            epoch += 1

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, epoch])

    def _shuffled(self, _epoch: int, random: np.random.Generator) -> list[list[int]]:
        order = random.permutation(len(self.items)).tolist()
        size = self.settings.batch_size
        return [order[start : start + size] for start in range(0, len(order), size)]


def _optimizer(module: nn.Module, settings: TrainingSettings, rates: Mapping[str, float]) -> torch.optim.Optimizer:
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained_parameters(module).items():
        start = max((start for start in rates if name.startswith(start)), key=len, default="")
        decay = settings.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rates.get(start, 1.0), decay), []).append(parameter)
    return torch.optim.AdamW(
        [{"params": params, "scale": scale, "weight_decay": decay} for (scale, decay), params in groups.items()],
        lr=settings.learning_rate,
    )


def processes_of_training() -> PartialState:
    """The processes that train together, one where `accelerate launch` started none; RetrievalError without accelerate."""
    try:
        from accelerate import PartialState
        from accelerate.utils import parse_flag_from_env
    except ImportError as error:
        raise RetrievalError(f'Training needs accelerate ({error}): pip install "langgraph-convcoa[train]".') from error
    # As `accelerate launch --cpu` asks for; only its larger `Accelerator` reads this by itself.
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


@contextmanager
def _writer(folder: str | Path | None, step: int) -> Iterator[Callable[[str, float, int], None]]:
    if folder is None:
        yield lambda _name, _value, _step: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RetrievalError(f'The logs need TensorBoard ({error}): pip install "langgraph-convcoa[train]".') from error
    # What a killed run logged after its last checkpoint is logged again.
    try:
        writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)
    except OSError as error:
        raise RetrievalError(f"The logs cannot be written to {folder} ({error.strerror}): name another folder.") from error
    try:
        yield writer.add_scalar
    finally:
        writer.close()
