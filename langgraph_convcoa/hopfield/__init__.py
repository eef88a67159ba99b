"""Modern Hopfield networks in plain PyTorch: sparsity maps, energy, retrieval, layers (Pan et al. 2024b, sec. 4, app. F)."""

from langgraph_convcoa.hopfield.attention import retrieve
from langgraph_convcoa.hopfield.convergence import converge
from langgraph_convcoa.hopfield.energy import energy, similarity, update
from langgraph_convcoa.hopfield.entmax import entmax15
from langgraph_convcoa.hopfield.layers import SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling
from langgraph_convcoa.hopfield.softmax_one import softmax, softmax_1
from langgraph_convcoa.hopfield.sparsity import sparsemax
from langgraph_convcoa.hopfield.sparsity_topk import sparsemax_topk

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
    "sparsemax_topk",
    "update",
]
