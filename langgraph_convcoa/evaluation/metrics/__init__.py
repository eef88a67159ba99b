"""Metrics of answers and rankings, and tests of significance."""
