"""Gradients of a loss over a large batch in the memory of a small one (Gao et al. 2021, GradCache)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

Module_contra = TypeVar("Module_contra", bound=nn.Module, contravariant=True)
Item_contra = TypeVar("Item_contra", contravariant=True)
Module = TypeVar("Module", bound=nn.Module)
Item = TypeVar("Item")


class Objective(Protocol[Module_contra, Item_contra]):
    """A loss to minimise, computed in two steps, so that a large batch need not be encoded at once."""

    def represent(self, module: Module_contra, items: Sequence[Item_contra]) -> tuple[Tensor, ...]:
        """Vectors of some items, each item's after those of the item before it; each tensor has the items' rows in dim 0."""
        ...

    def loss(self, module: Module_contra, vectors: tuple[Tensor, ...], items: Sequence[Item_contra]) -> Mapping[str, Tensor]:
        """The parts of the loss of a whole batch, by name; their sum is minimised."""
        ...


def backward(
    module: Module,
    objective: Objective[Module, Item],
    items: Sequence[Item],
    *,
    chunk: int | None = None,
    seed: Sequence[int] = (0,),
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> dict[str, float]:
    """Add the gradient of the loss of a batch to the parameters, and return the parts of the loss.

    With `chunk` the items are encoded in parts without a graph, the loss is differentiated down to their vectors, and each
    part is encoded again and takes its share of that gradient: the same gradient as of the batch at once, in the memory of a
    part, at one more forward pass. The random numbers of a part, made from `seed`, are the same both times. Vectors are
    computed in `autocast`, the loss outside of it, in float32 at least.

    Example:
        >>> class Squares:
        ...     def represent(self, module, items):
        ...         return (module(torch.tensor(items).unsqueeze(-1)),)
        ...     def loss(self, module, vectors, items):
        ...         return {"squares": vectors[0].square().sum()}
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.ones_(layer.weight)
        >>> backward(layer, Squares(), [1.0, 2.0, 3.0], chunk=2), layer.weight.grad.tolist()
        ({'squares': 14.0}, [[28.0]])
    """
    size = chunk or len(items)
    parts = [items[start : start + size] for start in range(0, len(items), size)]

    def represented(number: int) -> tuple[Tensor, ...]:
        _sow(seed, number + 1)
        with autocast():
            return tuple(map(_wide, objective.represent(module, parts[number])))

    def differentiated(vectors: tuple[Tensor, ...]) -> dict[str, float]:
        _sow(seed, 0)
        losses = dict(objective.loss(module, vectors, items))
        torch.autograd.backward(torch.stack([loss.reshape(()) for loss in losses.values()]).sum())
        return {name: float(loss.detach()) for name, loss in losses.items()}

    if len(parts) == 1:
        return differentiated(represented(0))
    with torch.no_grad():
        found = [represented(number) for number in range(len(parts))]
    leaves = tuple(torch.cat(columns) for columns in zip(*found, strict=True))
    for leaf in leaves:
        leaf.requires_grad_(leaf.is_floating_point())
    losses = differentiated(leaves)
    starts = [0] * len(leaves)
    for number, before in enumerate(found):
        vectors = represented(number)
        shares: list[tuple[Tensor, Tensor]] = []
        for place, (vector, leaf) in enumerate(zip(vectors, leaves, strict=True)):
            rows = slice(starts[place], starts[place] + len(before[place]))
            starts[place] = rows.stop
            if vector.requires_grad and leaf.grad is not None:
                shares.append((vector, leaf.grad[rows]))
        if shares:
            torch.autograd.backward([vector for vector, _ in shares], [share for _, share in shares])
    return losses


def _sow(seed: Sequence[int], part: int) -> None:
    torch.manual_seed(int(np.random.SeedSequence([*seed, part]).generate_state(1)[0]))


def _wide(vector: Tensor) -> Tensor:
    return vector.float() if vector.dtype in (torch.bfloat16, torch.float16) else vector
