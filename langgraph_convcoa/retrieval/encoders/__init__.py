"""Encoders: texts into vectors."""
