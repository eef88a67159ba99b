"""Modern Hopfield networks: sparsity maps, energy, retrieval, layers (Pan et al. 2024b, sec. 4, app. F).

The names below are plain PyTorch and load on first use: search needs only `arrays`, which loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph_convcoa.hopfield.functional import (
        converge,
        energy,
        entmax15,
        retrieve,
        similarity,
        softmax,
        sparsemax,
        update,
    )
    from langgraph_convcoa.hopfield.layers import SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling

__all__ = ["SparseHopfield", "SparseHopfieldLayer", "SparseHopfieldPooling"]
__all__ += ["converge", "energy", "entmax15", "retrieve", "similarity", "softmax", "sparsemax", "update"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'layers' if name.startswith('Sparse') else 'functional'}"), name)


def __dir__() -> list[str]:
    return __all__
