"""The action that searches the user's own documents, and its settings (Pan et al. 2024b, section 3.4.2)."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from pydantic import BaseModel, ConfigDict, Field

from langgraph_convcoa.actions.base import ActionRequest, BaseAction
from langgraph_convcoa.errors import ConvCoAError, InputError, first_line

Retriever = BaseRetriever | Runnable[str, list[Document]]
"""A LangChain retriever, also in wrappers such as `with_retry`, or a chain from a question to documents."""

_NO_CONTENT = re.compile(r"(?!\d+\Z)[\s.()•*…–-]*+\d{0,3}[\s.()•*…–-]*+")
"""Matches a passage that is only a mark, such as the number of a page or of a list item."""


class KnowledgeRetrievalSettings(BaseModel):
    """Settings of a `KnowledgeRetrieval` for a run."""

    model_config = ConfigDict(extra="forbid")

    k: int | None = Field(default=None, ge=1, le=100, description="Passages for each sub-question; if empty, the turn's k.")
    use_history: bool | None = Field(
        default=None, description="Search with the conversation's state; by default unless a sub-question is self-contained."
    )
    graph: bool | None = Field(
        default=None, description="Follow names from passage to passage; by default as the retriever is set."
    )


class KnowledgeRetrieval(BaseAction):
    """Searches a retriever for the sub-question and the planner's guess.

    If a sub-question is not self-contained, a `HopfieldRetriever` also searches with the state of the conversation. Any other
    retriever or chain gets the previous question in front of the sub-question.

    Args:
        retriever: Any LangChain retriever, or a chain from a question to documents, such as `retriever | rerank`.
        name: The action's name for the planner and the chain.
        description: What the documents are about, for the planner.

    Raises:
        InputError: `retriever` is no Runnable. Later, from `retrieve`: a chain fails on a question, or no documents come back.

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
    looks_first = True

    def __init__(
        self,
        retriever: Retriever,
        *,
        name: str = "knowledge_retrieval",
        description: str = "searches the user's own documents; takes a description of the information that is needed",
    ) -> None:
        if not isinstance(retriever, Runnable):
            raise InputError(
                "the retriever must be a LangChain retriever or another Runnable from a question to documents, not "
                f"{type(retriever).__name__}: give store.as_retriever() or HopfieldRetriever.from_vectorstore(store) for a "
                "vector store, and langchain_core.runnables.RunnableLambda(function) for a function"
            )
        self.retriever = retriever
        self.name = name
        self.description = description
        self._options = _options(retriever)
        searched = inner(retriever)
        self._is_chain = searched is None
        # A retriever without its own async method is run in a thread: the inherited async method drops `k` and `history`.
        self._plain = searched is not None and bool(self._options) and _only_plain(searched)

    @property
    def encoder(self) -> Any:
        """The encoder of the retriever, or of a chain's first retriever, or None."""
        first: Runnable[Any, Any] = self.retriever
        while isinstance(first, RunnableSequence):
            first = first.first
        return getattr(inner(first), "encoder", None)

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        """The passages. Raises InputError if a chain does not take a question or return documents."""
        query = request.query
        wanted: dict[str, Any] = {
            "k": request.k,
            "neighbours": request.neighbours or None,
            "graph": request.settings.get("graph"),
            "history": list(request.history) or None,
        }
        options = {name: value for name, value in wanted.items() if name in self._options and value is not None}
        if request.history and "history" not in self._options:
            query = f"{request.history[-1][0]} {query}"
        try:
            if self._plain:
                found: Any = await asyncio.to_thread(self.retriever.invoke, query, **options)
            else:
                found = await self.retriever.ainvoke(query, **options)
        except (TypeError, AttributeError, LookupError, AssertionError, ValueError) as error:
            if not self._is_chain or isinstance(error, ConvCoAError):
                raise
            told = first_line(error, named=True)
            raise InputError(
                f"the retriever of {self.name} failed on a plain question ({told}); for a chain that takes a dict give "
                'RunnableLambda(lambda question: {"input": question}) | chain'
            ) from error
        if not isinstance(found, Sequence) or not all(isinstance(document, Document) for document in found):
            kind = type(found).__name__
            raise InputError(
                f"the retriever of {self.name} must return a list of documents, not {kind}: end the chain with them"
            )
        return [document for document in found[: request.k] if not _NO_CONTENT.fullmatch(document.page_content)]


def inner(retriever: object) -> BaseRetriever | None:
    """The retriever inside wrappers such as `with_retry` and `bind`; None for a chain."""
    while isinstance(retriever, RunnableBindingBase):
        retriever = retriever.bound
    return retriever if isinstance(retriever, BaseRetriever) else None


def _only_plain(retriever: BaseRetriever) -> bool:
    return type(retriever)._aget_relevant_documents is BaseRetriever._aget_relevant_documents


def _options(retriever: object) -> set[str]:
    """The options that a call may set: those that the retriever takes and no wrapper has set."""
    if isinstance(retriever, RunnableBindingBase):
        return _options(retriever.bound) - set(retriever.kwargs)
    if not isinstance(retriever, BaseRetriever):
        return set()
    search = retriever._get_relevant_documents if _only_plain(retriever) else retriever._aget_relevant_documents
    return {"k", "history", "neighbours", "graph"} & set(inspect.signature(search).parameters)
