"""Sparse modern Hopfield retrieval in pure torch: sparsity maps, energy and update."""
