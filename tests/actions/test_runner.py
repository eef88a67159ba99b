from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from langgraph_convcoa import build_graph
from langgraph_convcoa.actions.base import ActionRequest, GivenAction
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.actions.runner import ActionError, ActionRunner, as_actions, as_evidence, is_transient, reason_of
from langgraph_convcoa.actions.tool import ToolAction
from langgraph_convcoa.errors import InputError
from tests.actions.test_tool import population
from tests.bounds import run_in_threads, run_python
from tests.fakes import KeywordRetriever, WaitingAction

REQUEST = ActionRequest(question="When?", sub_question="When was sparsemax introduced?", guess_answer="In 2016.")
LIMITS: dict[str, Any] = {"within": 5, "turn": "t", "limit": 4}


def test_evidence_gets_what_the_action_left_out() -> None:
    text = "One. Sparsemax was introduced in 2016. Two."
    [found] = as_evidence([Document(text), Document(" "), Document(text)], "web", REQUEST)
    assert found.id == as_evidence([Document(text)], "other", REQUEST)[0].id, "of equal texts it is the same"
    assert found.metadata == {"source": "web", "score": 1.0, "quote": "Sparsemax was introduced in 2016."}


def test_evidence_keeps_what_the_action_gave() -> None:
    document = Document("Text.", id="x", metadata={"source": "s", "score": 0.3, "quote": "Te", "page": 2})
    assert as_evidence([document], "web", REQUEST) == [document]


def own(**fields: Any) -> Any:
    return type("Own", (), {"name": "own", "description": "its own", **fields})()


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (object(), "not an action"),
        (WaitingAction("two words"), "action name"),
        (own(retrieve=lambda self, request: []), "async def retrieve"),
    ],
)
def test_actions_that_are_none_are_refused_at_once(action: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ActionRunner([action])


def test_a_description_may_be_asked_for_anew_and_is_the_name_where_it_fails() -> None:
    action = WaitingAction("a")
    answers = iter(["first", "second"])
    action.description = lambda: next(answers)  # type: ignore[assignment]
    runner = ActionRunner([action])
    assert [runner.descriptions() for _ in range(3)] == [{"a": "first"}, {"a": "second"}, {"a": "a"}]


def test_plain_callers_share_one_loop() -> None:
    loops = []

    class Looping(WaitingAction):
        async def retrieve(self, request: ActionRequest) -> list[Document]:
            loops.append(asyncio.get_running_loop())
            return []

    runner = ActionRunner([Looping("a")])
    run_in_threads([lambda: runner.run("a", REQUEST, **LIMITS)] * 4)
    assert len(set(loops)) == 1


_ENDING = """
import atexit, threading, time

def told():
    time.sleep(0.3)
    print([thread.name for thread in threading.enumerate() if thread.daemon])

atexit.register(told)  # Called after those that are registered later.
from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.runner import ActionRunner

class Answer:
    name, description = "answer", "answers"

    async def retrieve(self, request):
        return "42"

[found] = ActionRunner([Answer()]).run("answer", ActionRequest("?", "?"), within=300, turn="t", limit=1)
print(found.page_content)
"""


def test_the_loop_sleeps_on_when_the_program_ends() -> None:
    # A thread that closes its loop then, and frees a tensor, aborts the program that has done its work.
    ended = run_python("-c", _ENDING)
    assert (ended.stdout, ended.stderr) == ("42\n['convcoa-actions']\n", "")


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionError(), True), (httpx.ConnectError("x"), True), (httpx.ReadTimeout("x"), True),
        (httpx.HTTPStatusError("x", request=httpx.Request("GET", "http://a"), response=httpx.Response(503)), True),
        (httpx.HTTPStatusError("x", request=httpx.Request("GET", "http://a"), response=httpx.Response(429)), True),
        (httpx.HTTPStatusError("x", request=httpx.Request("GET", "http://a"), response=httpx.Response(404)), False),
        (TimeoutError(), False), (ValueError(), False), (FileNotFoundError(), False),
    ],
)  # fmt: skip
def test_what_is_worth_another_try(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


def test_reasons_are_one_line_without_secrets() -> None:
    assert reason_of(ValueError("api_key=sk-abc failed\nmore")) == "ValueError: api_key=[hidden] failed"
    assert reason_of(ValueError("Authorization: Bearer abc.def")) == "ValueError: Authorization: [hidden]"
    assert reason_of(KeyError()) == "KeyError"


def test_texts_are_evidence_too() -> None:
    assert [d.page_content for d in as_evidence(["One.", Document("Two.")], "own", REQUEST)] == ["One.", "Two."]
    [alone] = as_evidence("Sparsemax was introduced in 2016.", "own", REQUEST)
    assert alone.metadata == {"source": "own", "score": 1.0, "quote": "Sparsemax was introduced in 2016."}


@pytest.mark.parametrize("found", [{"a": 1}, 3, [3], None])
def test_what_is_no_evidence_is_named(found: Any) -> None:
    with pytest.raises(ActionError, match="the action own failed: retrieve must return documents or texts, not"):
        as_evidence(found, "own", REQUEST)


def test_the_user_reads_which_action_failed() -> None:
    async def retrieve(_: Any, request: ActionRequest) -> Any:
        return "Sparsemax was introduced in 2016." if "sparsemax" in request.question else 3

    graph = build_graph(actions=[own(retrieve=retrieve)]).compile()
    assert graph.invoke({"question": "When was sparsemax introduced?"})["answer"] == "Sparsemax was introduced in 2016 [1]."
    failed = graph.invoke({"question": "When was softmax introduced?"})["answer"]
    assert "the action own failed: retrieve must return documents or texts, not int" in failed


def test_options_of_an_object_that_is_no_base_action_are_kept() -> None:
    class Own(WaitingAction):
        looks_first = True

    runner = ActionRunner([Own("a", deepens=True)])
    action = runner["a"]
    assert (action.looks_first, action.deepens, action.repairs, action.always_fresh) == (True, True, False, False)


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
