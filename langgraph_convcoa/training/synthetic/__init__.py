"""Synthetic conversations from single-turn questions."""
