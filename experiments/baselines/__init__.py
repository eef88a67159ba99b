"""Prompting baselines of the papers, and ablations of our method."""
