"""Readers of conversational questions and of the passages that answer them, for training and evaluation."""
