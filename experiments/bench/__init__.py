"""Benchmarks of encoding, questions, training, and an engine against the exact search."""
