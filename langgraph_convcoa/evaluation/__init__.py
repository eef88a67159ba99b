"""Evaluation: methods, metrics, runs and reports of measurements; the library itself never imports this package."""
