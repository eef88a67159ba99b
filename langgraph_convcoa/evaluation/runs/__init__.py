"""Runs: methods asked the questions of a data set, resumably."""
