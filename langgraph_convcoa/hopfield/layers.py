"""Hopfield layers: three of the four configurations of Pan et al. 2024b, app. F (the other is `functional.retrieve`).

Heads cut Q and K into equal parts along the association dimension. Each head retrieves in its part with its own beta. W_V
acts on all parts together. There is no normalisation and no bias.
"""

from __future__ import annotations

import math
from typing import Self, TypedDict, Unpack

import torch
from torch import Tensor, nn

from langgraph_convcoa.hopfield.functional import Activation, Retrieved, check_activation, retrieve


class Dynamics(TypedDict, total=False):
    """How a layer retrieves: keyword arguments that all layers take."""

    heads: int  # Number of heads; it divides the association dimension.
    beta: float | Tensor | None  # A number, or a tensor () or (heads,); 1 / sqrt(association_dim / heads) when None.
    learn_beta: bool  # If True, each head learns the logarithm of its beta.
    activation: Activation  # "sparsemax", "entmax15" or "softmax".
    update_steps: int  # 1 or more.
    eps: float  # A query that moves by at most this length makes only one more step.


class HopfieldHeads(nn.Module):
    """Base of the layers: cuts queries and patterns into heads, retrieves, and applies W_V to all heads."""

    def __init__(
        self,
        dim: int,
        association_dim: int | None,
        *,
        heads: int = 1,
        beta: float | Tensor | None = None,
        learn_beta: bool = False,
        activation: Activation = "sparsemax",
        update_steps: int = 1,
        eps: float = 1e-4,
    ) -> None:
        super().__init__()
        self.association_dim = association_dim = dim if association_dim is None else association_dim
        if heads < 1 or association_dim < 1 or association_dim % heads:
            raise ValueError(f"heads must divide association_dim; {heads} does not divide {association_dim}.")
        if update_steps < 1 or not eps >= 0:
            raise ValueError(f"update_steps must be 1 or more and eps 0 or more, not {update_steps} and {eps}.")
        self.heads, self.update_steps, self.eps = heads, update_steps, eps
        self.activation = check_activation(activation)
        betas = _betas(1 / math.sqrt(association_dim // heads) if beta is None else beta, heads, learn_beta)
        betas = betas.to(torch.get_default_device(), torch.get_default_dtype())
        self.log_beta = nn.Parameter(betas.log()) if learn_beta else None
        self.register_buffer("fixed_beta", None if learn_beta else betas)
        self.value = nn.Linear(association_dim, dim, bias=False)

    @property
    def beta(self) -> Tensor:
        """The inverse temperature of each head, (heads,)."""
        if self.log_beta is not None:
            return self.log_beta.exp()
        return self.get_buffer("fixed_beta")

    def extra_repr(self) -> str:
        return f"heads={self.heads}, activation={self.activation!r}, update_steps={self.update_steps}"

    def _batched(self, given: Tensor, name: str, dim: int) -> Tensor:
        """Return the input as (batch, length, dim); batch is 1 for an input without it."""
        if given.ndim not in (2, 3) or given.shape[-1] != dim:
            raise ValueError(f"{name} must be (batch, length, dim) or (length, dim) with dim {dim}, not {tuple(given.shape)}.")
        return given.unsqueeze(0) if given.ndim == 2 else given

    def _attend(self, query: Tensor, stored: Tensor, stored_mask: Tensor | None, pair_mask: Tensor | None) -> Retrieved:
        """Q (batch, m, a) and K (batch, n, a) -> state (batch, heads, m, a / heads) and its weights."""
        if len({len(query), len(stored)} - {1}) > 1:
            raise ValueError(
                f"Queries are a batch of {len(query)}, stored patterns one of {len(stored)}: they must be equal, or one 1."
            )
        mask = _mask(stored_mask, pair_mask, query, stored)
        query, stored = (
            x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads).transpose(-2, -3) for x in (query, stored)
        )
        beta = self.beta.view(-1, 1, 1)
        return retrieve(
            query, stored, beta=beta, activation=self.activation, mask=mask, update_steps=self.update_steps, eps=self.eps
        )

    def _output(self, found: Retrieved, batched: bool) -> Tensor:
        """Join the heads and apply W_V: (batch, m, dim), without the batch if the input has none."""
        output: Tensor = self.value(found.state.movedim(1, -2).flatten(-2))
        return output if batched else output.squeeze(0)


class SparseHopfield(HopfieldHeads):
    """Z = act(beta R W_Q W_K^T Y^T) Y W_K W_V: queries R retrieve from patterns Y, in a learned association space.

    Args:
        dim: Dimension of a query and of an output.
        stored_dim: Dimension of a stored pattern; `dim` when None.
        association_dim: Dimension of the association space, all heads together; `dim` when None.
        **dynamics: See `Dynamics`.

    Example:
        >>> layer = SparseHopfield(8, heads=2, learn_beta=True)
        >>> queries, stored = torch.randn(4, 3, 8), torch.randn(4, 10, 8)
        >>> layer(queries, stored).shape, layer.association(queries, stored).shape
        (torch.Size([4, 3, 8]), torch.Size([4, 2, 3, 10]))
    """

    def __init__(
        self, dim: int, stored_dim: int | None = None, association_dim: int | None = None, **dynamics: Unpack[Dynamics]
    ) -> None:
        super().__init__(dim, association_dim, **dynamics)
        self.query = nn.Linear(dim, self.association_dim, bias=False)
        self.key = nn.Linear(dim if stored_dim is None else stored_dim, self.association_dim, bias=False)

    @torch.no_grad()
    def identity_(self) -> Self:
        """Set W_Q, W_K and W_V to the identity, for memory retrieval. Raises ValueError if the dimensions differ."""
        for linear in (self.query, self.key, self.value):
            if linear.in_features != linear.out_features:
                raise ValueError("Identity weights need dim, stored_dim and association_dim to be equal.")
            nn.init.eye_(linear.weight)
        return self

    def forward(
        self, query: Tensor, stored: Tensor, *, stored_mask: Tensor | None = None, pair_mask: Tensor | None = None
    ) -> Tensor:
        """Retrieve from the stored patterns Y with each query of R.

        R is (batch, m, dim), Y (batch, n, stored_dim). R or Y without a batch is used for the whole batch. `stored_mask`,
        (batch, n) or (n,), is False for padding (the opposite of torch's key_padding_mask). `pair_mask`, (batch, m, n) or
        (m, n), is True where the query may retrieve the pattern. Raises ValueError for another shape.

        Returns Z, (batch, m, dim), without the batch if neither input has one; zeros for a query that may retrieve nothing.
        """
        found = self._attend(*self._project(query, stored), stored_mask, pair_mask)
        return self._output(found, batched=max(query.ndim, stored.ndim) == 3)

    def association(
        self, query: Tensor, stored: Tensor, *, stored_mask: Tensor | None = None, pair_mask: Tensor | None = None
    ) -> Tensor:
        """The weights (batch, heads, m, n) that `forward` gives to the stored patterns for the same arguments."""
        return self._attend(*self._project(query, stored), stored_mask, pair_mask).weights

    def _project(self, query: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        queries = self.query(self._batched(query, "query", self.query.in_features))
        return queries, self.key(self._batched(stored, "stored", self.key.in_features))


class SparseHopfieldPooling(HopfieldHeads):
    """Z = act(beta Q W_K^T Y^T) Y W_K W_V with learned prototypes Q: a set of any size becomes `prototypes` vectors.

    `dim` is the dimension of a stored pattern and of an output. Other arguments are as for SparseHopfield.

    Example:
        >>> SparseHopfieldPooling(8, prototypes=2)(torch.randn(4, 10, 8)).shape
        torch.Size([4, 2, 8])
    """

    def __init__(
        self, dim: int, prototypes: int = 1, association_dim: int | None = None, **dynamics: Unpack[Dynamics]
    ) -> None:
        super().__init__(dim, association_dim, **dynamics)
        self.prototypes = _learned(prototypes, self.association_dim, "prototypes")
        self.key = nn.Linear(dim, self.association_dim, bias=False)

    def forward(self, stored: Tensor, *, stored_mask: Tensor | None = None, pair_mask: Tensor | None = None) -> Tensor:
        """Retrieve Z (batch, prototypes, dim) from Y (batch, n, dim) with each prototype. Otherwise as SparseHopfield."""
        keys = self.key(self._batched(stored, "stored", self.key.in_features))
        found = self._attend(self.prototypes.unsqueeze(0), keys, stored_mask, pair_mask)
        return self._output(found, batched=stored.ndim == 3)


class SparseHopfieldLayer(HopfieldHeads):
    """Z = act(beta R W_Q K^T) K W_V with learned stored patterns K: a memory that is part of the model.

    `patterns` is the number of stored patterns. Other arguments are as for SparseHopfield.

    Example:
        >>> SparseHopfieldLayer(8, patterns=16)(torch.randn(4, 3, 8)).shape
        torch.Size([4, 3, 8])
    """

    def __init__(self, dim: int, patterns: int, association_dim: int | None = None, **dynamics: Unpack[Dynamics]) -> None:
        super().__init__(dim, association_dim, **dynamics)
        self.query = nn.Linear(dim, self.association_dim, bias=False)
        self.patterns = _learned(patterns, self.association_dim, "patterns")

    def forward(self, query: Tensor, *, pair_mask: Tensor | None = None) -> Tensor:
        """Retrieve Z (batch, m, dim) for queries R (batch, m, dim). The mask has a column for each learned pattern."""
        queries = self.query(self._batched(query, "query", self.query.in_features))
        found = self._attend(queries, self.patterns.unsqueeze(0), None, pair_mask)
        return self._output(found, batched=query.ndim == 3)


def _learned(count: int, dim: int, name: str) -> nn.Parameter:
    if count < 1:
        raise ValueError(f"{name} must be 1 or more, not {count}.")
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, dim)))


def _betas(beta: float | Tensor, heads: int, learn: bool) -> Tensor:
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
    """Join both masks into one mask that broadcasts to (batch, heads, m, n)."""
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
