"""A retriever as the tool of an agent."""

from __future__ import annotations

from collections.abc import Sequence

from langchain.tools import ToolRuntime
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, StructuredTool

from langgraph_convcoa.retrieval.query.conversation_state import Turn, history_pairs

_DESCRIPTION = "Search the documents. Takes a question in full sentences; returns the passages that answer it best."


def retriever_tool(retriever: BaseRetriever, name: str | None = None, description: str | None = None) -> BaseTool:
    """Make a tool from a retriever that takes a `history`. It returns passages as text, and documents as artifact."""

    def search(query: str, runtime: ToolRuntime = None) -> tuple[str, list[Document]]:  # type: ignore[assignment]
        found = retriever.invoke(query, history=_earlier_turns(runtime))
        return _as_text(found), found

    async def asearch(query: str, runtime: ToolRuntime = None) -> tuple[str, list[Document]]:  # type: ignore[assignment]
        found = await retriever.ainvoke(query, history=_earlier_turns(runtime))
        return _as_text(found), found

    return StructuredTool.from_function(
        search,
        asearch,
        name=name or "search_documents",
        description=description or _DESCRIPTION,
        response_format="content_and_artifact",
    )


def _earlier_turns(runtime: ToolRuntime | None) -> list[Turn]:
    """The earlier turns of the agent that calls the tool; empty outside of an agent."""
    state = getattr(runtime, "state", None)
    return history_pairs(state.get("messages"))[:-1] if isinstance(state, dict) else []


def _as_text(found: Sequence[Document]) -> str:
    passages = (f"id: {one.id}\nsource: {one.metadata.get('source', one.id)}\n{one.page_content}" for one in found)
    return "\n\n".join(passages) or "No passage was found."
