"""Measurements of verifiers on labelled claims and on answers that people rated."""
