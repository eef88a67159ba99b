"""`convcoa evaluate`: retrieval, answers, and people's judgements of answers."""

from langgraph_convcoa.cli.evaluate.command import app

__all__ = ["app"]
