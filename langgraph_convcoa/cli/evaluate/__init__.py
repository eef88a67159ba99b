"""`convcoa evaluate`: retrieval, answers and verification, measured on the user's data."""

from langgraph_convcoa.cli.evaluate.command import app

__all__ = ["app"]
