"""The action that searches the user's own documents, and its settings (Pan et al. 2024b, section 3.4.2)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import BaseModel, ConfigDict, Field

from langgraph_convcoa.actions.base import ActionRequest


class KnowledgeRetrievalSettings(BaseModel):
    """Settings of a `KnowledgeRetrieval` for a run."""

    model_config = ConfigDict(extra="forbid")

    k: int | None = Field(default=None, ge=1, le=100, description="Passages a sub-question; the turn's k when left empty.")
    use_history: bool | None = Field(
        default=None,
        description="Search with the conversation's state. Left empty: only where sub-questions are not self-contained.",
    )


class KnowledgeRetrieval:
    """Searches a retriever for Sub|guess.

    With a `HopfieldRetriever` a sub-question that is not self-contained is searched with the state of the conversation; any
    other LangChain retriever gets the previous question in front of it.

    Args:
        retriever: Any LangChain retriever.
        name: What the planner and the chain call this action.
        description: What the planner reads; say what the documents are about.

    Example:
        >>> import asyncio
        >>> from langchain_core.documents import Document
        >>> from langchain_core.retrievers import BaseRetriever
        >>> class Fixed(BaseRetriever):
        ...     def _get_relevant_documents(self, query, *, run_manager):
        ...         return [Document("Sparsemax is from 2016.", id="a")]
        >>> action = KnowledgeRetrieval(Fixed())
        >>> asyncio.run(action.retrieve(ActionRequest(question="When?", sub_question="When?")))[0].id
        'a'
    """

    settings = KnowledgeRetrievalSettings
    deepens = False

    def __init__(
        self,
        retriever: BaseRetriever,
        *,
        name: str = "knowledge_retrieval",
        description: str = "searches the user's own documents; takes a description of the information that is needed",
    ) -> None:
        self.retriever = retriever
        self.name = name
        self.description = description
        # A retriever without an async method of its own is run in a thread: the inherited one drops `k` and `history`.
        self._plain = type(retriever)._aget_relevant_documents is BaseRetriever._aget_relevant_documents
        search = retriever._get_relevant_documents if self._plain else retriever._aget_relevant_documents
        self._options = {"k", "history"} & set(inspect.signature(search).parameters)

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        options: dict[str, Any] = {}
        query = request.query
        if "k" in self._options:
            options["k"] = request.k
        if request.history:
            if "history" in self._options:
                options["history"] = list(request.history)
            else:
                query = f"{request.history[-1][0]} {query}"
        if self._plain:
            documents = await asyncio.to_thread(self.retriever.invoke, query, **options)
        else:
            documents = await self.retriever.ainvoke(query, **options)
        return documents[: request.k]
