"""What the Hopfield layers share: heads, inverse temperatures, masks, chunks and W_V."""

from __future__ import annotations

import math
from typing import TypedDict

import torch
from torch import Tensor, nn

from langgraph_convcoa.hopfield.activations import Activation, check_activation
from langgraph_convcoa.hopfield.attention import Retrieved, retrieve, split


class Dynamics(TypedDict, total=False):
    """How a layer retrieves: keyword arguments that all layers take.

    heads: how many; divides the association dimension. 1.
    beta: inverse temperature: a number, or a tensor () or (heads,). 1 / sqrt(association_dim / heads).
    learn_beta: whether each head learns its beta, as its logarithm. False.
    activation: "sparsemax", "entmax15", "softmax" or "softmax_1". "sparsemax".
    update_steps: how often to retrieve, 1 or more. 1.
    eps: a query that a step moves by at most this much makes only its last step more. 1e-4.
    batch_first: whether three-dimensional input is (batch, length, dim) or (length, batch, dim). True.
    device, dtype: of the weights, as in torch.
    """

    heads: int
    beta: float | Tensor | None
    learn_beta: bool
    activation: Activation
    update_steps: int
    eps: float
    batch_first: bool
    device: torch.device | str | None
    dtype: torch.dtype | None


class HopfieldHeads(nn.Module):
    """The base of the layers: it cuts into heads, retrieves, and puts the heads side by side through W_V."""

    def __init__(
        self,
        association_dim: int,
        output_dim: int,
        *,
        heads: int = 1,
        beta: float | Tensor | None = None,
        learn_beta: bool = False,
        activation: Activation = "sparsemax",
        update_steps: int = 1,
        eps: float = 1e-4,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if heads < 1 or association_dim < 1 or association_dim % heads:
            raise ValueError(f"heads must divide association_dim; {heads} does not divide {association_dim}.")
        if update_steps < 1 or not eps >= 0:
            raise ValueError(f"update_steps must be 1 or more and eps 0 or more, not {update_steps} and {eps}.")
        self.heads, self.update_steps, self.eps, self.batch_first = heads, update_steps, eps, batch_first
        self.activation = check_activation(activation)
        betas = _betas(1 / math.sqrt(association_dim // heads) if beta is None else beta, heads, learn_beta)
        betas = betas.to(device=device or torch.get_default_device(), dtype=dtype or torch.get_default_dtype())
        self.log_beta = nn.Parameter(betas.log()) if learn_beta else None
        self.register_buffer("fixed_beta", None if learn_beta else betas)
        self.value = nn.Linear(association_dim, output_dim, bias=False, device=device, dtype=dtype)

    @property
    def beta(self) -> Tensor:
        """The inverse temperature of each head, (heads,)."""
        if self.log_beta is not None:
            return self.log_beta.exp()
        return self.get_buffer("fixed_beta")

    def extra_repr(self) -> str:
        return f"heads={self.heads}, activation={self.activation!r}, update_steps={self.update_steps}"

    def _batched(self, given: Tensor, name: str, dim: int) -> Tensor:
        """Input as (batch, length, dim), with batch 1 where it has none."""
        if given.ndim not in (2, 3) or given.shape[-1] != dim:
            order = "(batch, length, dim)" if self.batch_first else "(length, batch, dim)"
            raise ValueError(f"{name} must be {order} or (length, dim) with dim {dim}, not {tuple(given.shape)}.")
        if given.ndim == 2:
            return given.unsqueeze(0)
        return given if self.batch_first else given.transpose(0, 1)

    def _attend(
        self, query: Tensor, stored: Tensor, stored_mask: Tensor | None, pair_mask: Tensor | None, chunks: int | None
    ) -> Retrieved:
        """Q (batch, m, a) and K (batch, n, a) -> state (batch, heads, [k,] m, a / heads) and its weights."""
        if len({len(query), len(stored)} - {1}) > 1:
            raise ValueError(
                f"Queries are a batch of {len(query)}, stored patterns one of {len(stored)}: they must be equal, or one 1."
            )
        mask = _mask(stored_mask, pair_mask, query, stored)
        query, stored = (
            x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads).transpose(-2, -3) for x in (query, stored)
        )
        beta = self.beta.view(-1, 1, 1)
        if chunks is not None:
            query, beta = query.unsqueeze(-3), beta.unsqueeze(-1)
            stored, mask = split(stored, chunks, mask)
        return retrieve(
            query, stored, beta=beta, activation=self.activation, mask=mask, update_steps=self.update_steps, eps=self.eps
        )

    def _output(self, found: Retrieved, batched: bool) -> Tensor:
        """The heads side by side, through W_V: (batch, [k,] m, output), or as batch_first and the input ask."""
        output: Tensor = self.value(found.state.movedim(1, -2).flatten(-2))
        if not batched:
            return output.squeeze(0)
        return output if self.batch_first else output.movedim(0, -2)


def _betas(beta: float | Tensor, heads: int, learn: bool) -> Tensor:
    """One beta a head, (heads,)."""
    betas = torch.as_tensor(beta, dtype=torch.float64, device="cpu").detach()
    if betas.shape not in ((), (heads,)):
        raise ValueError(
            f"beta must be a number or a tensor of one number a head, ({heads},), not of shape {tuple(betas.shape)}."
        )
    if not (betas >= 0).all():
        raise ValueError(f"beta must be from 0 to infinity, not {betas.tolist()}.")
    if learn and not ((betas > 0) & betas.isfinite()).all():
        raise ValueError(f"A beta that is learned must begin above 0 and finite, not at {betas.tolist()}.")
    return betas.expand(heads).clone()


def _mask(stored_mask: Tensor | None, pair_mask: Tensor | None, query: Tensor, stored: Tensor) -> Tensor | None:
    """Both masks as one that broadcasts to (batch, heads, m, n)."""
    batch, m, n = max(len(query), len(stored)), query.shape[1], stored.shape[1]
    mask = None
    for given, name, shape in ((stored_mask, "stored_mask", (n,)), (pair_mask, "pair_mask", (m, n))):
        if given is None:
            continue
        if given.is_floating_point() or tuple(given.shape) not in (shape, (1, *shape), (batch, *shape)):
            raise ValueError(f"{name} must be boolean, {(batch, *shape)} or {shape}, not {given.dtype} {tuple(given.shape)}.")
        whole = given.bool().expand(batch, *shape).unsqueeze(1)
        whole = whole.unsqueeze(1) if len(shape) == 1 else whole
        mask = whole if mask is None else mask & whole
    return mask
