"""The loop that every training here runs in: of a head, of a query encoder, of both towers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.training.loop.checkpoints import (
    Place,
    check_resumed,
    load_checkpoint,
    save_checkpoint,
    trained_parameters,
)
from langgraph_convcoa.training.loop.gradient_cache import Objective, backward
from langgraph_convcoa.training.loop.interruption import interruptions
from langgraph_convcoa.training.loop.settings import TrainingSettings, described, schedule

if TYPE_CHECKING:
    from accelerate import PartialState

Item = TypeVar("Item")
Batches = Callable[[int, np.random.Generator], Sequence[Sequence[int]]]
"""The batches of an epoch: lists of numbers of items, from the number of the epoch and the random numbers to use."""


@dataclass(frozen=True)
class TrainingReport:
    """What a training came to.

    Attributes:
        steps: How many steps.
        seconds: How long they took, over all parts of a resumed run; evaluations are not counted.
        evaluations: (step, seconds, score) of each.
        best: The step whose weights were kept, where `keep_best` was asked for.
    """

    steps: int
    seconds: float
    evaluations: tuple[tuple[int, float, float], ...]
    best: int | None


def train(
    module: nn.Module,
    objective: Objective[Item],
    items: Sequence[Item],
    settings: TrainingSettings,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    fingerprint: str = "",
    batches: Batches | None = None,
    rates: Mapping[str, float] | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    keep_best: bool = False,
    logs: str | Path | None = None,
    progress: Progress = False,
    device: str | torch.device | None = None,
) -> TrainingReport:
    """Minimise an objective over the parameters of a module that ask for a gradient.

    A run that is interrupted and resumed ends with the same weights as one that was not, on a CPU bit by bit: the order of the
    data and every random number come from the seed and the step. Started by `accelerate launch` on several devices, each has
    its share of every batch, negatives included, and the gradients are averaged.

    Args:
        module: What is trained; moved to the device, and back in evaluation mode afterwards.
        objective: Vectors of items, and the loss of a batch.
        items: What is trained on.
        settings: How long and how fast.
        checkpoint: File for the state of the run, written as `settings` says and at Ctrl-C; the caller discards it once the
            model is saved. None is written without.
        resume: Go on from that file where it is there.
        fingerprint: Of the data and of what is frozen; a run is only resumed with the same.
        batches: The batches of an epoch; shuffled items cut into batches, the last of them smaller, when None.
        rates: Factors on the learning rate of parameters whose names start so; the longest such start counts.
        evaluate: A score of the module, higher is better, taken without gradients every `evaluate_every` steps.
        keep_best: End with the weights of the best score.
        logs: Folder for TensorBoard.
        progress: A bar, a callback or nothing.
        device: "cpu", "cuda", ...; what accelerate finds when None.

    Raises:
        InputError: There is nothing to train or to train on, or the checkpoint is there and not to be resumed, or is of
            another run.
        RetrievalError: The loss is NaN or infinite, the checkpoint is damaged or cannot be written, or a package is missing.
        KeyboardInterrupt: Ctrl-C, after the step under way and its checkpoint.

    Example:
        >>> class Squares:
        ...     def represent(self, module, items):
        ...         return (module(torch.tensor(items).unsqueeze(-1)),)
        ...     def loss(self, module, vectors, items):
        ...         return {"squares": vectors[0].square().mean()}
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> report = train(layer, Squares(), [1.0, 2.0], TrainingSettings(steps=50, learning_rate=0.1), device="cpu")
        >>> report.steps, abs(layer.weight.item()) < 0.1
        (50, True)
    """
    path = None if checkpoint is None else Path(checkpoint)
    if not items:
        raise InputError("There is nothing to train on: the data has no example of this kind.")
    if not trained_parameters(module):
        raise InputError("There is nothing to train: every parameter of the model is frozen.")
    if path is not None:
        check_resumed(path, resume=resume)
    run = _Run(module, objective, items, settings, batches, rates, evaluate, keep_best, device)
    run.place.settings = described(settings, items, fingerprint, rates)
    if path is not None and path.exists():
        run.place, run.best = load_checkpoint(path, module, run.optimizer, run.place.settings)
    with _writer(logs if run.main else None, run.place.step) as log, torch.random.fork_rng(run.devices):
        run.go(path, log, progress)
    module.eval()
    place = run.place
    return TrainingReport(place.step, place.seconds, tuple(place.evaluations), place.best if keep_best else None)


class _Run:
    """One training under way."""

    def __init__(
        self,
        module: nn.Module,
        objective: Objective[Any],
        items: Sequence[Any],
        settings: TrainingSettings,
        batches: Batches | None,
        rates: Mapping[str, float] | None,
        evaluate: Callable[[nn.Module], float] | None,
        keep_best: bool,
        device: str | torch.device | None,
    ) -> None:
        self.processes = _processes()
        self.device = self.processes.device if device is None else torch.device(device)
        self.devices = [self.device] if self.device.type == "cuda" else []
        self.main = self.processes.is_main_process
        self.module = module.to(self.device)
        self.objective, self.items, self.settings = objective, items, settings
        self.batches = batches or self._shuffled
        self.evaluate, self.keep_best = evaluate, keep_best
        self.optimizer = _optimizer(module, settings, rates or {})
        self.total = settings.steps or settings.epochs * len(self.batches(0, self._random(0)))
        self.place, self.best = Place(), dict[str, Tensor]()

    def go(self, path: Path | None, log: Callable[[str, float, int], None], progress: Progress) -> None:
        every = self.settings.checkpoint_every if path is not None else 0
        self._share_weights()
        with interruptions() as interrupted, track(progress, self.total, "Training") as advance:
            advance(self.place.step)
            for batch in self._remaining():
                begin = perf_counter()
                self._step(batch)
                self.place.seconds += perf_counter() - begin
                self._log(log)
                self._measure(log)
                stop, step = interrupted(), self.place.step
                if every and path is not None and (stop or step % every == 0 or step == self.total) and self.main:
                    save_checkpoint(path, self.module, self.optimizer, self.place, self.best)
                advance(1)
                if stop:
                    break
        if self.keep_best and self.best and self.place.step == self.total:
            with torch.no_grad():
                for name, parameter in trained_parameters(self.module).items():
                    parameter.copy_(self.best[name])

    def _step(self, batch: Sequence[int]) -> None:
        settings, step = self.settings, self.place.step
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
            autocast=self._autocast,
        )
        total = sum(losses.values())
        parameters = list(trained_parameters(self.module).values())
        self._average_gradients(parameters)
        length = torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        if not (math.isfinite(total) and bool(torch.isfinite(length))):
            raise RetrievalError(f"The loss or its gradient is NaN or infinite at step {step + 1}: lower the learning rate.")
        self.optimizer.step()
        for name, value in {**losses, "steps": 1.0}.items():
            self.place.losses[name] = self.place.losses.get(name, 0.0) + value
        self.place.step += 1

    def _measure(self, log: Callable[[str, float, int], None]) -> None:
        step, every = self.place.step, self.settings.evaluate_every
        if self.evaluate is None or not (step == self.total or (every and step % every == 0)):
            return
        self.module.eval()
        with torch.no_grad():
            score = float(self.evaluate(self.module))
        seen = [found for *_, found in self.place.evaluations]
        self.place.evaluations.append((step, self.place.seconds, score))
        log("score", score, step)
        if self.keep_best and score > max(seen, default=-math.inf):
            self.place.best = step
            self.best = {name: p.detach().cpu().clone() for name, p in trained_parameters(self.module).items()}

    def _log(self, log: Callable[[str, float, int], None]) -> None:
        steps = self.place.losses["steps"]
        if steps < 10 and self.place.step < self.total:
            return
        for name, value in self.place.losses.items():
            if name != "steps":
                log(f"loss/{name}", value / steps, self.place.step)
        log("learning_rate", self.optimizer.param_groups[0]["lr"], self.place.step)
        self.place.losses = {}

    def _remaining(self) -> Iterator[Sequence[int]]:
        """The batches of the run, epoch after epoch, from where it stands."""
        number, epoch = 0, 0
        while number < self.total:
            chosen = self.batches(epoch, self._random(epoch))
            if not chosen:
                raise InputError("There is nothing to train on: no batch could be made of the examples.")
            for batch in chosen:
                if self.place.step <= number < self.total:
                    yield batch
                number += 1
            epoch += 1

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, epoch])

    def _shuffled(self, _epoch: int, random: np.random.Generator) -> list[list[int]]:
        order = random.permutation(len(self.items)).tolist()
        size = self.settings.batch_size
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.settings.mixed_precision == "bf16" else nullcontext()

    def _share_weights(self) -> None:
        """The same weights on every device, whatever they were made of."""
        if self.processes.num_processes > 1:
            from accelerate.utils import broadcast

            with torch.no_grad():
                for parameter in self.module.parameters():
                    parameter.copy_(broadcast(parameter.data))

    def _average_gradients(self, parameters: list[nn.Parameter]) -> None:
        if self.processes.num_processes > 1:
            from accelerate.utils import reduce

            for parameter in parameters:
                found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = reduce(found, "mean")


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


def _processes() -> PartialState:
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
