"""The activations by name: how the scores of a query against stored patterns become association weights."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from langgraph_convcoa.hopfield.entmax import entmax15
from langgraph_convcoa.hopfield.scaling import scaled
from langgraph_convcoa.hopfield.softmax_one import softmax, softmax_1
from langgraph_convcoa.hopfield.sparsity import sparsemax
from langgraph_convcoa.hopfield.sparsity_topk import sparsemax_topk

Activation = Literal["sparsemax", "entmax15", "softmax", "softmax_1"]

# Up to about this many scores a row, sorting all of them is as fast as finding the largest.
SORTED_UP_TO = 64


def associate(
    scores: Tensor,
    *,
    activation: Activation = "sparsemax",
    beta: float | Tensor = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Association weights over the last dimension.

    Args:
        scores: (..., n), floating point.
        activation: "sparsemax", "entmax15", "softmax" or "softmax_1".
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., 1), such as (heads, 1, 1).
        mask: Broadcasts to (..., n), True where an entry may have weight. All entries when None.

    Returns:
        Weights (..., n) that add up to one (softmax_1: to at most one); a row without an unmasked entry is all zero.

    Raises:
        ValueError: The activation is unknown, beta is negative or not a number, or the mask is an additive one.

    Example:
        >>> import torch
        >>> associate(torch.tensor([1.0, 0.5, -0.5])).tolist()
        [0.75, 0.25, 0.0]
    """
    match check_activation(activation):
        case "entmax15":
            return entmax15(scores, beta=beta, mask=mask)
        case "softmax":
            return softmax(scores, beta=beta, mask=mask)
        case "softmax_1":
            return softmax_1(scores, beta=beta, mask=mask)
        case "sparsemax":
            if scores.shape[-1] > SORTED_UP_TO:
                return sparsemax_topk(scores, beta=beta, mask=mask)
            z, allowed = scaled(scores, beta, mask)
            return sparsemax(z, mask=allowed).to(scores.dtype)


def check_activation(name: str) -> Activation:
    """The name, if it is that of an activation.

    Raises:
        ValueError: It is not.

    Example:
        >>> check_activation("entmax15")
        'entmax15'
    """
    for known in get_args(Activation):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"Unknown activation {name!r}: use one of {', '.join(get_args(Activation))}.")
