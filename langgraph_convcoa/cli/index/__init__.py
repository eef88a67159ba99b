"""`convcoa index`: documents into an index on disk, or into an engine."""

from langgraph_convcoa.cli.index.command import index

__all__ = ["index"]
