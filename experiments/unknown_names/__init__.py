"""Refusals of questions about names that are in no document."""
