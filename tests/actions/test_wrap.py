"""What a user gives as actions: tools and retrievers are wrapped, for anything else the error says how."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from langgraph_convcoa.actions.base import GivenAction
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.actions.runner import as_actions
from langgraph_convcoa.actions.tool import ToolAction
from langgraph_convcoa.errors import InputError
from tests.actions.test_tool import population
from tests.fakes import KeywordRetriever, WaitingAction


class WikiSearch(KeywordRetriever):
    pass


def names(retriever: Any = None, actions: Any = None) -> list[str]:
    return [action.name for action in as_actions(retriever, actions)]


def test_tools_and_retrievers_are_wrapped_in_their_places() -> None:
    own = WaitingAction("own")
    first, second, third, fourth = as_actions(KeywordRetriever(), [population, own, WikiSearch()])
    assert isinstance(first, KnowledgeRetrieval)
    assert isinstance(second, ToolAction)
    assert isinstance(third, GivenAction)
    assert third.given is own
    assert isinstance(fourth, KnowledgeRetrieval)
    assert [action.name for action in (first, second, third, fourth)] == [
        "knowledge_retrieval", "population", "own", "wiki_search",
    ]  # fmt: skip
    assert fourth.description == "searches WikiSearch; takes what is to be found out"


def test_the_first_retriever_is_the_one_of_the_users_own_documents() -> None:
    assert names(None, [population, WikiSearch()]) == ["population", "knowledge_retrieval"]
    assert names(None, [WikiSearch(), KeywordRetriever()]) == ["knowledge_retrieval", "keyword_retriever"]
    own = KnowledgeRetrieval(KeywordRetriever(), name="knowledge_retrieval")
    assert names(None, [WikiSearch(), own]) == ["wiki_search", "knowledge_retrieval"]


def test_a_retriever_says_its_name_also_in_wrappers() -> None:
    assert names(KeywordRetriever(), [WikiSearch(name="Our papers")]) == ["knowledge_retrieval", "our_papers"]
    assert names(KeywordRetriever(), [WikiSearch(name="Our papers").with_retry()]) == ["knowledge_retrieval", "our_papers"]


def test_two_retrievers_of_one_name_are_an_error_that_says_how_to_name_them() -> None:
    with pytest.raises(InputError, match=r"'wiki_search'.*KnowledgeRetrieval\(retriever, name="):
        names(KeywordRetriever(), [WikiSearch(), WikiSearch()])


def function(question: str) -> str:
    return question


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (function, r"langchain_core.tools.tool\(function\)"),
        (ToolAction, r"write ToolAction\(\.\.\.\)"),
        (RunnableLambda(lambda question: []), r"KnowledgeRetrieval\(chain, name="),
        (KeywordRetriever() | (lambda documents: documents), r"KnowledgeRetrieval\(chain, name="),
        (InMemoryVectorStore(DeterministicFakeEmbedding(size=4)), "as_retriever"),
        ({"type": "function", "function": {}}, "the LangChain tool itself"),
        ("web", "str is not an action"),
    ],
)
def test_anything_else_is_an_error_that_says_how(other: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        names(KeywordRetriever(), [other])


@pytest.mark.parametrize(("given", "message"), [({}, "a list of"), (population, "a list of"), (None, "give a")])
def test_actions_are_a_list(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        names(None, given)
