"""Modern Hopfield networks in plain PyTorch: sparsity maps, energy, retrieval, layers (Pan et al. 2024b, sec. 4, app. F)."""

from langgraph_convcoa.hopfield.attention import retrieve
from langgraph_convcoa.hopfield.energy import converge, energy, similarity, update
from langgraph_convcoa.hopfield.layers import SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling
from langgraph_convcoa.hopfield.sparsity import entmax15, softmax, softmax_1, sparsemax

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
    "softmax_1",
    "sparsemax",
    "update",
]
