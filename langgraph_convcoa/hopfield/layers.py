"""Hopfield layers (Pan et al. 2024b, app. F), three configurations over `attention.retrieve`; memory retrieval is that itself.

    Z = act(beta R W_Q W_K^T Y^T) Y W_K W_V

    SparseHopfield(R, Y)        W_Q, W_K, W_V learned: instead of attention
    SparseHopfieldPooling(Y)    Q learned: one output for each prototype query
    SparseHopfieldLayer(R)      Y the identity, so that K = W_K are learned stored patterns

With several heads, Q and K are cut into equal parts along the association dimension, each head retrieves in its part with
its own beta, and W_V acts on the parts side by side. Nothing is normalised and no bias is added.
"""

from __future__ import annotations

from typing import Self, Unpack

import torch
from torch import Tensor, nn

from langgraph_convcoa.hopfield.heads import Dynamics, HopfieldHeads


class SparseHopfield(HopfieldHeads):
    """Z = act(beta R W_Q W_K^T Y^T) Y W_K W_V: queries R retrieve from patterns Y, in an association space that is learned.

    Args:
        dim: Of a query and of an output.
        stored_dim: Of a stored pattern; `dim` when None.
        association_dim: Of the association space, all heads together; `dim` when None.
        **dynamics: See `Dynamics`.

    Example:
        >>> layer = SparseHopfield(8, heads=2, learn_beta=True)
        >>> queries, stored = torch.randn(4, 3, 8), torch.randn(4, 10, 8)
        >>> layer(queries, stored).shape, layer.association(queries, stored).shape
        (torch.Size([4, 3, 8]), torch.Size([4, 2, 3, 10]))
        >>> layer(queries, stored, chunks=5).shape
        torch.Size([4, 5, 3, 8])
    """

    def __init__(
        self, dim: int, stored_dim: int | None = None, association_dim: int | None = None, **dynamics: Unpack[Dynamics]
    ) -> None:
        association_dim = dim if association_dim is None else association_dim
        super().__init__(association_dim, dim, **dynamics)
        device, dtype = dynamics.get("device"), dynamics.get("dtype")
        self.query = nn.Linear(dim, association_dim, bias=False, device=device, dtype=dtype)
        self.key = nn.Linear(
            dim if stored_dim is None else stored_dim, association_dim, bias=False, device=device, dtype=dtype
        )

    @torch.no_grad()
    def identity_(self) -> Self:
        """Set W_Q, W_K and W_V to the identity: memory retrieval, and where training begins as the untrained retriever.

        Raises:
            ValueError: The dimensions of queries, stored patterns and association space are not one.

        Example:
            >>> SparseHopfield(2, beta=4.0).identity_()(torch.tensor([[0.9, 0.1]]), torch.eye(2)).tolist()
            [[1.0, 0.0]]
        """
        for linear in (self.query, self.key, self.value):
            if linear.in_features != linear.out_features:
                raise ValueError("Identity weights need dim, stored_dim and association_dim to be equal.")
            nn.init.eye_(linear.weight)
        return self

    def forward(
        self,
        query: Tensor,
        stored: Tensor,
        *,
        stored_mask: Tensor | None = None,
        pair_mask: Tensor | None = None,
        chunks: int | None = None,
    ) -> Tensor:
        """What each query retrieves.

        Args:
            query: R, (batch, m, dim), or (m, dim) for all of the batch.
            stored: Y, (batch, n, stored_dim), or (n, stored_dim) for all of the batch.
            stored_mask: (batch, n) or (n,), False for padding (the opposite of torch's key_padding_mask).
            pair_mask: (batch, m, n) or (m, n), True where the query may retrieve the pattern.
            chunks: Cut Y, in order, into this many parts k of ceil(n / k) patterns and retrieve from each by itself, with the
                same weights (Pan et al. 2024b, sec. 4.2). Part i is as if the others were masked, so only k = 1 equals the
                retrieval from all of Y. sim(z_i, x) says which part fits the query best.

        Returns:
            Z, (batch, m, dim), or (m, dim) where neither input has a batch; a query that may retrieve nothing gets zeros. With
            chunks (batch, k, m, dim). With batch_first False the batch comes last but one.

        Raises:
            ValueError: A shape does not fit.
        """
        found = self._attend(*self._project(query, stored), stored_mask, pair_mask, chunks)
        return self._output(found, batched=max(query.ndim, stored.ndim) == 3)

    def association(
        self, query: Tensor, stored: Tensor, *, stored_mask: Tensor | None = None, pair_mask: Tensor | None = None
    ) -> Tensor:
        """The weights (batch, heads, m, n) of the stored patterns in what `forward` returns, for the same arguments."""
        return self._attend(*self._project(query, stored), stored_mask, pair_mask, None).weights

    def _project(self, query: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
        queries = self.query(self._batched(query, "query", self.query.in_features))
        return queries, self.key(self._batched(stored, "stored", self.key.in_features))


class SparseHopfieldPooling(HopfieldHeads):
    """Z = act(beta Q W_K^T Y^T) Y W_K W_V with learned prototypes Q: a set of any size becomes `prototypes` vectors.

    Args:
        dim: Of a stored pattern and of an output.
        prototypes: How many to learn, 1 or more.
        association_dim: Of the association space, all heads together; `dim` when None.
        **dynamics: See `Dynamics`.

    Example:
        >>> SparseHopfieldPooling(8, prototypes=2)(torch.randn(4, 10, 8)).shape
        torch.Size([4, 2, 8])
    """

    def __init__(
        self, dim: int, prototypes: int = 1, association_dim: int | None = None, **dynamics: Unpack[Dynamics]
    ) -> None:
        association_dim = dim if association_dim is None else association_dim
        super().__init__(association_dim, dim, **dynamics)
        device, dtype = dynamics.get("device"), dynamics.get("dtype")
        self.prototypes = _learned(prototypes, association_dim, device, dtype, "prototypes")
        self.key = nn.Linear(dim, association_dim, bias=False, device=device, dtype=dtype)

    def forward(
        self,
        stored: Tensor,
        *,
        stored_mask: Tensor | None = None,
        pair_mask: Tensor | None = None,
        chunks: int | None = None,
    ) -> Tensor:
        """What each prototype retrieves: Z, (batch, prototypes, dim) from Y, (batch, n, dim); else as in SparseHopfield."""
        keys = self.key(self._batched(stored, "stored", self.key.in_features))
        found = self._attend(self.prototypes.unsqueeze(0), keys, stored_mask, pair_mask, chunks)
        return self._output(found, batched=stored.ndim == 3)


class SparseHopfieldLayer(HopfieldHeads):
    """Z = act(beta R W_Q K^T) K W_V with learned stored patterns K: a memory that is part of the model.

    Args:
        dim: Of a query and of an output.
        patterns: How many to learn, 1 or more.
        association_dim: Of the association space, all heads together; `dim` when None.
        **dynamics: See `Dynamics`.

    Example:
        >>> SparseHopfieldLayer(8, patterns=16)(torch.randn(4, 3, 8)).shape
        torch.Size([4, 3, 8])
    """

    def __init__(self, dim: int, patterns: int, association_dim: int | None = None, **dynamics: Unpack[Dynamics]) -> None:
        association_dim = dim if association_dim is None else association_dim
        super().__init__(association_dim, dim, **dynamics)
        device, dtype = dynamics.get("device"), dynamics.get("dtype")
        self.query = nn.Linear(dim, association_dim, bias=False, device=device, dtype=dtype)
        self.patterns = _learned(patterns, association_dim, device, dtype, "patterns")

    def forward(self, query: Tensor, *, pair_mask: Tensor | None = None, chunks: int | None = None) -> Tensor:
        """What each query retrieves from the learned patterns: Z, (batch, m, dim) from R, (batch, m, dim).

        The masks and chunks are as in SparseHopfield, with n = `patterns`.
        """
        queries = self.query(self._batched(query, "query", self.query.in_features))
        found = self._attend(queries, self.patterns.unsqueeze(0), None, pair_mask, chunks)
        return self._output(found, batched=query.ndim == 3)


def _learned(count: int, dim: int, device: torch.device | str | None, dtype: torch.dtype | None, name: str) -> nn.Parameter:
    if count < 1:
        raise ValueError(f"{name} must be 1 or more, not {count}.")
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, dim, device=device, dtype=dtype)))
