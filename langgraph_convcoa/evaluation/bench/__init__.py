"""Benchmarks: speed and memory of scoring, encoders and training."""
