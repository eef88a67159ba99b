"""The best window of every memory set, by maxima of runs of rows, in memory that one thread uses again and again."""

from __future__ import annotations

import math
import threading

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Runs of up to 2**6 rows are laid out; a block with a longer set is reduced set by set.
_MOST_LEVELS = 6


class Scratch(threading.local):
    """Memory for a block's numbers, one piece a name and thread: fresh memory for every block takes longer than its sums."""

    def __init__(self) -> None:
        self._pieces: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of whatever was there before; what was taken under this name is given up.

        Example:
            >>> Scratch().take("sums", (2, 3), torch.int32, torch.device("cpu")).shape
            torch.Size([2, 3])
        """
        size = math.prod(shape)
        piece = self._pieces.get(name)
        if piece is None or piece.numel() < size or piece.dtype != dtype:
            piece = self._pieces[name] = torch.empty(size, dtype=dtype, device=device)
        return piece[:size].view(shape)


def window_maxima(products: Tensor, edges: npt.NDArray[np.int64], scratch: Scratch) -> Tensor:
    """The maxima over the windows of each memory set, that is over all its rows but the first.

    The maximum of s rows is that of its first and its last 2^l rows, 2^l <= s < 2^(l+1), and those of all runs of 2^l rows
    come from those of 2^(l-1) in one step (the sparse table of range maximum queries).

    Args:
        products: (m, q), left as they are.
        edges: (n + 1,), from 0 to m; set i is rows edges[i] to edges[i + 1], at least two.
        scratch: Memory to work in.

    Returns:
        Maxima of (n, q), NaN where a window is.

    Example:
        >>> products = torch.tensor([[9.0], [1.0], [9.0], [2.0], [5.0], [4.0]])
        >>> window_maxima(products, np.array([0, 2, 6]), Scratch()).flatten().tolist()
        [1.0, 5.0]
    """
    rows, count = products.shape
    levels = np.frexp(np.diff(edges) - 1)[1].astype(np.int64) - 1
    top = int(levels.max(initial=0))
    starts = edges[:-1] + 1
    device = products.device
    if top == 0:
        return products.index_select(0, torch.from_numpy(starts).to(device))
    if top > _MOST_LEVELS:
        return _set_by_set(products, torch.from_numpy(edges).to(device))
    table = scratch.take("maxima", (top, rows, count), products.dtype, device)
    level = products
    for number in range(top):
        width = 2**number
        runs = rows - 2 * width + 1
        torch.maximum(level[:runs], level[width : width + runs], out=table[number, :runs])
        level = table[number]
    flat = table.view(top * rows, count)
    base = np.maximum(levels - 1, 0) * rows
    best = flat.index_select(0, torch.from_numpy(base + starts).to(device))
    best = torch.maximum(best, flat.index_select(0, torch.from_numpy(base + edges[1:] - 2**levels).to(device)))
    alone = np.flatnonzero(levels == 0)
    if len(alone):
        only = products.index_select(0, torch.from_numpy(starts[alone]).to(device))
        best.index_copy_(0, torch.from_numpy(alone).to(device), only)
    return best


def _set_by_set(products: Tensor, edges: Tensor) -> Tensor:
    firsts = edges[:-1]
    whole = products.index_select(0, firsts)
    products.index_fill_(0, firsts, -torch.inf)
    best = torch.segment_reduce(products, "max", offsets=edges, axis=0, unsafe=True)
    products.index_copy_(0, firsts, whole)
    return best
