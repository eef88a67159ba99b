"""Prompting baselines of the papers, and ablations of ours."""
