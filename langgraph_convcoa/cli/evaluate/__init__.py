"""`convcoa evaluate`: retrieval, answers, graph readers, and people's judgements of answers."""

from langgraph_convcoa.cli.evaluate.command import app

__all__ = ["app"]
