"""Exact scoring of multi-vector passages."""
