"""Comparison of retrieval methods."""
