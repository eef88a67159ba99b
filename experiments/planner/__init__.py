"""Comparison of planners before and after their training, on held-out conversations."""
