"""Blind judging of a run's answers by people."""
