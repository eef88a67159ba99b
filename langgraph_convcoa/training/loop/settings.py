"""How long and how fast a training goes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langgraph_convcoa.errors import InputError


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how fast to train.

    Attributes:
        epochs: How often every item is seen.
        steps: How many batches, in place of `epochs`.
        batch_size: Items a step, over all devices together.
        chunk: Items encoded at a time, with gradient caching; the whole batch when None.
        learning_rate: Of AdamW, at its highest.
        warmup: Share of the steps in which it rises from 0; it then falls to 0 in a line.
        weight_decay: Of matrices; vectors and numbers have none.
        clip: Largest length of the gradient.
        mixed_precision: "bf16" encodes in bfloat16; weights and loss are float32 either way.
        seed: Of the order of the data and of dropout.
        checkpoint_every: Steps between two checkpoints; none are written when 0, nor at Ctrl-C.
        evaluate_every: Steps between two evaluations; one at the end when None.

    Raises:
        InputError: A number is out of range.
    """

    epochs: int = 1
    steps: int | None = None
    batch_size: int = 32
    chunk: int | None = None
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.0
    clip: float = 1.0
    mixed_precision: Literal["no", "bf16"] = "no"
    seed: int = 0
    checkpoint_every: int = 100
    evaluate_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "steps", "batch_size", "chunk", "evaluate_every"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InputError(f"{name} must be at least 1, not {number}.")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be a number above 0, not {getattr(self, name)}.")
        if not 0 <= self.warmup <= 1:
            raise InputError(f"warmup must be from 0 to 1, not {self.warmup}.")
        if not (0 <= self.weight_decay < math.inf and self.checkpoint_every >= 0 and self.seed >= 0):
            raise InputError("weight_decay, checkpoint_every and seed must be at least 0.")
        if self.mixed_precision not in ("no", "bf16"):
            raise InputError(f"mixed_precision must be no or bf16, not {self.mixed_precision!r}.")


def schedule(step: int, total: int, warmup: float) -> float:
    """The factor on the learning rate: up in a line from 0, then down in a line to 0."""
    rising = math.ceil(warmup * total)
    if step < rising:
        return (step + 1) / rising
    return (total - step) / max(1, total - rising)


def described(
    settings: TrainingSettings, items: Sequence[Any], fingerprint: str, rates: Mapping[str, float] | None
) -> dict[str, Any]:
    """What a run must have in common with the one that it goes on from."""
    kept = dataclasses.asdict(settings)
    del kept["checkpoint_every"]
    described: dict[str, Any] = json.loads(json.dumps({**kept, "examples": len(items), "data": fingerprint}))
    return {**described, "rates": dict(rates or {})}
