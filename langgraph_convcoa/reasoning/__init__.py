"""Reasoners: one that asks a chat model, and one without a model."""
