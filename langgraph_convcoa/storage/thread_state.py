"""What a stored thread's state says: its rounds, and whether a turn of it was interrupted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import StoreError
from langgraph_convcoa.storage.stores import FORMAT

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

    from langgraph_convcoa.memory.knowledge_set import Round

FORMAT_KEY = "convcoa_format"
"""In the metadata of every checkpoint: the format of the thread."""
SOURCES_KEY = "convcoa_sources"
"""In the metadata of every checkpoint: what the turn looked things up in."""


def config_of(thread: str, sources: str = "") -> RunnableConfig:
    """The configuration of a thread's runs, its format and what it looks things up in among the metadata."""
    return {"configurable": {"thread_id": thread}, "metadata": {FORMAT_KEY: FORMAT, SOURCES_KEY: sources}}


async def read_thread(graph: CompiledStateGraph[Any, Any, Any, Any], thread: str, label: str) -> StateSnapshot:
    """A thread's state.

    Raises:
        StoreError: It was written by a later release, or its data is damaged.
    """
    with _told(thread, label):
        snapshot = await graph.aget_state(config_of(thread))
    version = (snapshot.metadata or {}).get(FORMAT_KEY, FORMAT)
    if isinstance(version, int) and version > FORMAT:
        raise StoreError(
            f"the thread {thread!r} of {label} is of format {version}, and this release reads up to {FORMAT}: "
            "upgrade langgraph-convcoa"
        )
    return snapshot


def rounds_of(values: Mapping[str, Any]) -> list[Round]:
    """The rounds in a thread's state, oldest first."""
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

    return ContextualKnowledgeSet.load(values.get("knowledge_set")).rounds


def unfinished_question(snapshot: StateSnapshot) -> str:
    """The question of a turn that was interrupted before it was remembered; "" where there is none."""
    values = snapshot.values
    if values.get("asked_message_id"):
        return str(values.get("asked") or "")
    if not snapshot.next:
        return ""
    # Interrupted before `recall` had read it.
    if question := values.get("question"):
        return str(question)
    messages: Sequence[Any] = values.get("messages") or ()
    return str(messages[-1].text) if messages and messages[-1].type == "human" else ""


async def has_open_turn(graph: CompiledStateGraph[Any, Any, Any, Any], thread: str, label: str) -> bool:
    """Whether the thread's last checkpoint is other than that of a finished turn; one read, where `read_thread` is dearer.

    Raises:
        StoreError: The thread's data is damaged.
    """
    saver: Any = graph.checkpointer
    with _told(thread, label):
        stored = await saver.aget_tuple(config_of(thread))
    if stored is None:
        return False
    values = stored.checkpoint["channel_values"]
    asked = values.get("asked_message_id") or "question" in values or "__start__" in values
    return bool(stored.pending_writes or asked or stored.metadata.get(FORMAT_KEY) != FORMAT)


@contextmanager
def _told(thread: str, label: str) -> Iterator[None]:
    """Errors of a store's driver as they are; any other is of data that cannot be read."""
    try:
        yield
    except (sqlite3.Error, OSError):
        raise
    except Exception as error:
        if type(error).__module__.startswith("psycopg"):
            raise
        raise StoreError(
            f"the thread {thread!r} of {label} is damaged ({type(error).__name__}): "
            "import it from an export, or delete it; other threads are not affected"
        ) from error
