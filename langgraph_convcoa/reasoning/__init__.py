"""Reasoners: the seam to a model, and one without a model."""
