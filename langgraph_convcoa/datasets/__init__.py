"""Conversational questions and the passages that answer them, as training and evaluation read them."""
