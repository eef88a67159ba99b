"""Modern Hopfield networks in plain PyTorch: sparsity maps, energy, retrieval, layers (Pan et al. 2024b, sec. 4, app. F)."""

from langgraph_convcoa.hopfield.functional import converge, energy, entmax15, retrieve, similarity, softmax, sparsemax, update
from langgraph_convcoa.hopfield.layers import SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling

__all__ = [
    "SparseHopfield",
    "SparseHopfieldLayer",
    "SparseHopfieldPooling",
    "converge",
    "energy",
    "entmax15",
    "retrieve",
    "similarity",
    "softmax",
    "sparsemax",
    "update",
]
