"""Benchmarks of encoding, of questions, and of an engine against the exact search."""
