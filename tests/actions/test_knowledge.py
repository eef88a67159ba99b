"""Any LangChain retriever as an action."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval


class Plain(BaseRetriever):
    """Only what LangChain asks of a retriever."""

    _asked: list[str] = PrivateAttr(default_factory=list)

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        self._asked.append(query)
        return [Document(f"{n}", id=f"{n}") for n in range(9)]


class Async(BaseRetriever):
    """With an async method that takes k and the history."""

    _asked: list[Any] = PrivateAttr(default_factory=list)

    def _get_relevant_documents(self, query: str, *, run_manager: Any, k: int = 1, history: Any = ()) -> list[Document]:
        raise AssertionError("the async method is there")

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, k: int = 1, history: Any = ()) -> list[Document]:
        self._asked.append((query, k, history))
        return [Document("x", id="x")]


REQUEST = ActionRequest("q", "When was it?", guess_answer="1982", history=(("Who described it?", "Hopfield."),), k=3)


async def test_a_plain_retriever_gets_the_question_before_and_gives_k() -> None:
    retriever = Plain()
    found = await KnowledgeRetrieval(retriever).retrieve(REQUEST)
    assert [document.id for document in found] == ["0", "1", "2"]
    assert retriever._asked == ["Who described it? When was it? 1982"]


async def test_an_async_retriever_gets_what_it_takes() -> None:
    retriever = Async()
    await KnowledgeRetrieval(retriever).retrieve(REQUEST)
    assert retriever._asked == [("When was it? 1982", 3, [("Who described it?", "Hopfield.")])]


@pytest.mark.parametrize("name", ["handbook", "knowledge_retrieval"])
def test_the_planner_reads_its_name_and_description(name: str) -> None:
    action = KnowledgeRetrieval(Plain(), name=name, description="the handbook")
    assert (action.name, action.description) == (name, "the handbook")
