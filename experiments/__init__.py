"""Experiments that reproduce the papers. They are not part of the wheel."""
