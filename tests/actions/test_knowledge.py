"""Any LangChain retriever as an action."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import PrivateAttr

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.errors import InputError
from tests.fakes import FixedRetriever


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


async def test_a_passage_that_is_only_a_number_is_no_evidence() -> None:
    texts = ["2.", "It is old.", " - 17 - ", "1982", "...", "7", "5%"]
    action = KnowledgeRetrieval(FixedRetriever(found=[Document(text) for text in texts]))
    assert [d.page_content for d in await action.retrieve(ActionRequest("q?", "q?", k=9))] == ["It is old.", "1982", "7", "5%"]


@pytest.mark.parametrize("name", ["handbook", "knowledge_retrieval"])
def test_the_planner_reads_its_name_and_description(name: str) -> None:
    action = KnowledgeRetrieval(Plain(), name=name, description="the handbook")
    assert (action.name, action.description) == (name, "the handbook")


def rerank(documents: list[Document]) -> list[Document]:
    return documents[::-1]


@pytest.mark.parametrize(("chain", "found"), [(False, ["0", "1", "2"]), (True, ["8", "7", "6"])])
async def test_a_plain_retriever_or_a_chain_gets_the_question_before_and_gives_k(chain: bool, found: list[str]) -> None:
    retriever = Plain()
    given = await KnowledgeRetrieval(retriever | rerank if chain else retriever).retrieve(REQUEST)
    assert [document.id for document in given] == found
    assert retriever._asked == ["Who described it? When was it? 1982"]


async def test_a_function_in_a_runnable_is_a_retriever() -> None:
    async def later(question: str) -> list[Document]:
        return [Document(question, id="b")]

    plain = KnowledgeRetrieval(RunnableLambda(lambda question: [Document(question, id="a")]))
    assert (await plain.retrieve(REQUEST))[0].id == "a"
    assert (await KnowledgeRetrieval(RunnableLambda(later)).retrieve(REQUEST))[0].id == "b"


WRAPPERS: dict[str, Callable[[BaseRetriever], Any]] = {
    "none": lambda retriever: retriever,
    "retry": lambda retriever: retriever.with_retry(),
    "config": lambda retriever: retriever.with_config(tags=["mine"]),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_wrapped_retriever_gets_what_it_takes(wrap: Any) -> None:
    retriever = Async()
    await KnowledgeRetrieval(wrap(retriever)).retrieve(REQUEST)
    assert retriever._asked == [("When was it? 1982", 3, [("Who described it?", "Hopfield.")])]


async def test_what_a_wrapper_sets_stays_so() -> None:
    retriever = Async()
    await KnowledgeRetrieval(retriever.bind(k=7)).retrieve(REQUEST)
    assert retriever._asked[0][1] == 7


async def test_a_retriever_with_fallbacks_gets_the_question_before() -> None:
    retriever = Async()
    await KnowledgeRetrieval(retriever.with_fallbacks([Plain()])).retrieve(REQUEST)
    assert retriever._asked == [("Who described it? When was it? 1982", 1, ())]


def test_the_encoder_of_a_chain_is_that_of_the_retriever_it_begins_with() -> None:
    class Encoding(Plain):
        encoder: str = "an encoder"

    for retriever in (Encoding(), Encoding() | rerank, Encoding().with_retry() | rerank | rerank):
        assert KnowledgeRetrieval(retriever).encoder == "an encoder"
    assert KnowledgeRetrieval(Plain() | rerank).encoder is None
    assert KnowledgeRetrieval(RunnableLambda(rerank)).encoder is None


@pytest.mark.parametrize(
    "chain",
    [
        RunnableLambda(itemgetter("input")) | Plain(),
        RunnablePassthrough.assign(context=Plain()),
        RunnableLambda(lambda inputs: inputs.get("chat_history")) | Plain(),
        ChatPromptTemplate.from_template("{input} {chat_history}") | Plain(),
    ],
)
async def test_a_chain_that_takes_a_dict_says_what_to_put_in_front(chain: Any) -> None:
    with pytest.raises(InputError, match=r"failed on a plain question \(\w+: .+give RunnableLambda\(lambda question: "):
        await KnowledgeRetrieval(chain).retrieve(REQUEST)


@pytest.mark.parametrize("end", [lambda documents: "text", lambda documents: {"context": documents}, lambda documents: ["a"]])
async def test_a_chain_that_gives_no_documents(end: Any) -> None:
    with pytest.raises(InputError, match="must return a list of documents"):
        await KnowledgeRetrieval(Plain() | end).retrieve(REQUEST)


async def test_an_error_of_a_retriever_is_its_own() -> None:
    class Failing(Plain):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            raise TypeError("of its own")

    with pytest.raises(TypeError, match="of its own"):
        await KnowledgeRetrieval(Failing().with_retry(stop_after_attempt=1)).retrieve(REQUEST)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (InMemoryVectorStore(DeterministicFakeEmbedding(size=4)), "as_retriever"),
        (rerank, "RunnableLambda"),
        ("folder", "not str"),
    ],
)
def test_what_is_no_retriever_is_an_error_that_says_how(other: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        KnowledgeRetrieval(other)
