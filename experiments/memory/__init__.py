"""Measurements of the conversation memory."""
