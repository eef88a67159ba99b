"""Comparison of planners before and after their training."""
