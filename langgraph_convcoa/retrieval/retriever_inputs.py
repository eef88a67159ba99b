"""What a retriever is asked with: a question, or a question with the messages before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.query.conversation_state import History


def history_runnable(retriever: BaseRetriever) -> Runnable[dict[str, Any], list[Document]]:
    """The retriever on `{"input": question, "chat_history": messages}`."""

    def retrieve(inputs: dict[str, Any], config: RunnableConfig) -> list[Document]:
        query, history = _conversation(inputs)
        return retriever.invoke(query, config, history=history)

    async def aretrieve(inputs: dict[str, Any], config: RunnableConfig) -> list[Document]:
        query, history = _conversation(inputs)
        return await retriever.ainvoke(query, config, history=history)

    return RunnableLambda(retrieve, afunc=aretrieve, name="history_aware_retriever")


def query_text(query: str) -> str:
    """A question as it is encoded.

    Raises:
        InputError: It is no text, or empty.
    """
    if not isinstance(query, str):
        raise InputError(f"The question must be a string, not {type(query).__name__}.")
    text = query.strip().encode("utf-8", "replace").decode()
    if not text:
        raise InputError("The question is empty; write one.")
    return text


def checked_documents(documents: Iterable[Document]) -> Iterable[Document]:
    """The documents, each looked at when its turn comes, or all at once where they are all there.

    Raises:
        InputError: They are no iterable, or one is no LangChain document.
    """
    if not isinstance(documents, Iterable):
        raise InputError(f"The documents must be a list or another iterable, not {type(documents).__name__}.")

    def checked() -> Iterator[Document]:
        for document in documents:
            if not isinstance(document, Document):
                raise InputError(
                    f"A document must be a LangChain Document, not {type(document).__name__}; give plain texts to from_texts."
                )
            yield document

    return list(checked()) if isinstance(documents, Sized) else checked()


def _conversation(inputs: Mapping[str, Any]) -> tuple[str, History]:
    if not isinstance(inputs, Mapping) or "input" not in inputs:
        raise InputError('The history-aware retriever takes {"input": question, "chat_history": messages}.')
    return inputs["input"], inputs.get("chat_history") or []
