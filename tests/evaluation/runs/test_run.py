"""Runs over a server on loopback: order, history, failures, budget, and going on after a stop."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda

from langgraph_convcoa.errors import InputError, ModelError, RetrievalError
from langgraph_convcoa.evaluation.records import Answered, Outcome, Turn
from langgraph_convcoa.evaluation.runs.folder import ReplyCacheError, RunFolder, keep_replies
from langgraph_convcoa.evaluation.runs.run import Meter, RunSettings, failure, hopeless, run_methods, unkept
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.models import call_error
from tests.bounds import SECONDS, run_python
from tests.evaluation.runs.fakes import asking, folder, instant, model_of, number_in, questions_of
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan
from tests.openai_server import OpenAIServer, Reply, prompt_of


def run(methods: Any, place: RunFolder, asked: Any = None, remembering: Any = (), **settings: Any) -> str:
    more = {"remembering": remembering, "settings": RunSettings(**settings)}
    return run_methods(methods, asked or questions_of(), place, **more)


def by_id(place: RunFolder, method: str = "m") -> dict[str, Answered]:
    return {one.id: one for one in place.answers() if one.method == method}


def test_every_question_is_asked_once_with_its_costs_and_measures(tmp_path: Path) -> None:
    with OpenAIServer(number_in) as server, folder(tmp_path) as place:
        model = keep_replies(model_of(server), place.replies)
        assert run({"m": asking(model, calls=2), "n": asking(model, malformed=1)}, place) == ""
        assert len(list(place.answers())) == 12
        # The second method's calls are the first one's first calls, which are kept.
        assert len(server.requests) == 12
        one, other = by_id(place)["q1-1"], by_id(place, "n")["q1-1"]
    assert (one.answer, one.references, one.round, one.conversation) == ("It is 1011.", ("1011",), 2, "c1")
    assert (one.costs.calls, one.costs.input_tokens, one.costs.output_tokens) == (2, 200, 40)
    assert (other.costs.calls, other.malformed, other.metrics["cover_em"]) == (1, 1, 1.0)


def test_the_history_has_own_answers_or_gold_ones(tmp_path: Path) -> None:
    seen: dict[str, Turn] = {}

    def reply(turn: Turn) -> str:
        seen[turn.id] = turn
        return f"own {turn.id}"

    with folder(tmp_path / "own") as place:
        run({"m": instant(reply)}, place, questions_of(2, 3))
    assert [answer for _, answer in seen["q1-2"].history] == ["own q1-0", "own q1-1"]
    with folder(tmp_path / "gold") as place:
        run({"m": instant(reply)}, place, questions_of(2, 3), gold_history=True)
    assert [answer for _, answer in seen["q1-2"].history] == ["1010", "1011"]


def test_conversations_run_side_by_side_and_no_more_than_allowed(tmp_path: Path) -> None:
    running: list[str] = []
    most: list[int] = []
    three = asyncio.Event()

    async def answer(turn: Turn) -> Outcome:
        assert turn.conversation not in running
        running.append(turn.conversation)
        most.append(len(running))
        if len(running) == 3:
            three.set()
        async with asyncio.timeout(SECONDS):
            await three.wait()
        await asyncio.sleep(0.01)
        running.remove(turn.conversation)
        return Outcome("x")

    with folder(tmp_path) as place:
        run({"m": RunnableLambda(answer)}, place, questions_of(9, 2), concurrency=3)
    assert max(most) == 3


def test_failures_are_counted_and_stop_nothing(tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("key sk-secret", status=500) if "1-0" in prompt_of(body).splitlines()[-1] else number_in(body)

    with OpenAIServer(script) as server, folder(tmp_path) as place:
        model = model_of(server)
        run({"m": asking(model)}, place)
        answers = by_id(place)
    assert [one.id for one in answers.values() if one.error] == ["q1-0"]
    assert "failed on the server's side (500)" in answers["q1-0"].error
    assert answers["q1-0"].costs.calls == 1
    assert answers["q1-0"].metrics == {}
    assert answers["q1-1"].answer == "It is 1011."
    assert "secret" not in (tmp_path / "answers.jsonl").read_text()


def test_a_wrong_key_stops_the_run_early_and_nothing_is_written(tmp_path: Path) -> None:
    with OpenAIServer(lambda body: Reply("bad key", status=401)) as server, folder(tmp_path) as place:
        model = model_of(server)
        with pytest.raises(ModelError, match=r"refused the key \(401\).*10 questions in a row"):
            run({"m": asking(model)}, place, questions_of(30, 2), concurrency=2)
        assert len(server.requests) <= 12
        assert by_id(place) == {}
        with pytest.raises(ModelError, match=r"refused the key \(401\)"):
            run({"m": asking(model)}, place, questions_of(1, 2))
        assert by_id(place) == {}


def test_a_conversation_waits_for_the_next_start_where_a_quota_is_spent(tmp_path: Path) -> None:
    spent = True

    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("quota", status=429) if spent and "1-0" in prompt_of(body) else number_in(body)

    with OpenAIServer(script) as server, folder(tmp_path) as place:
        methods = {"m": asking(keep_replies(model_of(server), place.replies))}
        assert "429" in run(methods, place, concurrency=1)
        assert by_id(place).keys() == {"q0-0", "q0-1", "q2-0", "q2-1"}, "no later turn is asked without the earlier one"
        spent = False
        assert run(methods, place) == ""
        assert by_id(place)["q1-1"].answer == "It is 1011."


def test_the_budget_stops_between_questions_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    with OpenAIServer(number_in) as server, folder(tmp_path) as place:
        methods = {"m": asking(keep_replies(model_of(server), place.replies))}
        assert "budget of 300 tokens is spent (360)" in run(methods, place, max_tokens=300, concurrency=1)
        assert len(by_id(place)) == 3
        run(methods, place, max_tokens=300)
        assert len(by_id(place)) == 3
        assert run(methods, place, max_tokens=10_000) == ""
        assert len(by_id(place)) == 6
        assert len(server.requests) == 6


def test_a_run_goes_on_in_the_middle_of_a_conversation_with_its_own_answers(tmp_path: Path) -> None:
    histories = []

    def reply(turn: Turn) -> str:
        histories.append(turn.history)
        return f"own {turn.id}"

    with folder(tmp_path) as place:
        run({"m": instant(reply)}, place, questions_of(1, 1))
        histories.clear()
        run({"m": instant(reply)}, place, questions_of(1, 2))
        assert [len(history) for history in histories] == [1]
        # A method that remembers more than a history tells sees all questions again; the answers are not kept.
        histories.clear()
        run({"m": instant(reply)}, place, questions_of(1, 3), remembering={"m"})
        assert [len(history) for history in histories] == [0, 1, 2]
        assert [one.answer for one in place.answers()] == ["own q0-0", "own q0-1", "own q0-2"]
    assert [answer for _, answer in histories[-1]] == ["own q0-0", "own q0-1"]


def test_ctrl_c_lets_the_questions_under_way_finish(tmp_path: Path) -> None:
    async def answer(turn: Turn) -> Outcome:
        if turn.id == "q0-1":
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.02)
        return Outcome("x")

    with folder(tmp_path) as place:
        with pytest.raises(KeyboardInterrupt):
            run({"m": RunnableLambda(answer)}, place, questions_of(4, 2), concurrency=2)
        assert {"q0-0", "q0-1"} <= by_id(place).keys()
        assert len(by_id(place)) < 8


@pytest.mark.parametrize("bad", [{"concurrency": 0}, {"max_tokens": 0}])
def test_bad_settings_are_told(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        RunSettings(**bad)


class Outer(BaseRetriever):
    """A retriever that asks another one."""

    inner: Any

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        found: list[Document] = self.inner.invoke(query, {"callbacks": run_manager.get_child()})
        return found


async def test_a_turn_of_the_graph_counts_as_the_graph_counts_it() -> None:
    replies = [
        "no plan",
        plan(node("When was sparsemax introduced?", "In 1999."), node("Who wrote on DPR?", "Nobody.")),
        corrections("In 2016.", "Karpukhin.", final="In 2016 [1]."),
    ]
    graph = build_graph(model=ScriptedModel(replies=replies), retriever=KeywordRetriever()).compile()
    meter = Meter()
    out = await graph.ainvoke({"question": "When was the network described?"}, {"callbacks": [meter]})
    costs, usage = meter.costs(), out["usage"]
    assert (costs.calls, costs.input_tokens, costs.output_tokens) == (3, usage["input_tokens"], usage["output_tokens"])
    assert costs.retrievals == usage["retrievals"] == 3, "the question itself and two sub-questions"


def test_of_retrievers_in_retrievers_the_outermost_counts() -> None:
    meter = Meter()
    Outer(inner=Outer(inner=KeywordRetriever())).invoke("sparsemax", {"callbacks": [meter]})
    assert meter.costs().retrievals == 1


def test_a_failed_call_counts() -> None:
    meter = Meter()
    with pytest.raises(RuntimeError):
        ScriptedModel(replies=[RuntimeError("no")]).invoke("some words", {"callbacks": [meter]})
    assert meter.costs().calls == 1
    assert meter.costs().input_tokens > 0
    assert meter.costs().output_tokens == 0


REQUEST = httpx.Request("POST", "http://127.0.0.1/v1")


def status(code: int) -> openai.APIStatusError:
    return openai.APIStatusError("sk-secret", response=httpx.Response(code, request=REQUEST), body=None)


def wrapped(error: Exception) -> ModelError:
    try:
        raise call_error(error, ScriptedModel()) from error
    except ModelError as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (status(401), True),
        (wrapped(status(403)), True),
        (status(404), True),
        (openai.APIConnectionError(request=REQUEST), True),
        (wrapped(httpx.ConnectError("no")), True),
        (status(402), True),
        (wrapped(status(429)), True),
        (wrapped(status(500)), False),
        (openai.APITimeoutError(REQUEST), False),
        (httpx.ConnectTimeout("slow"), False),
        (ValueError("a method's own"), False),
    ],
)
def test_hopeless(error: Exception, expected: bool) -> None:
    assert hopeless(error) is expected


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (wrapped(status(429)), "rate limit"),
        (wrapped(openai.APITimeoutError(REQUEST)), "did not answer in time"),
        (status(500), "the method failed (500)"),
        (RetrievalError("the index is\ndamaged"), "the index is damaged"),
        (ValueError("sk-secret"), "the method failed (ValueError)"),
    ],
)
def test_what_is_said(error: Exception, said: str) -> None:
    text = failure(error)
    assert said in text
    assert "secret" not in text
    assert "\n" not in text


def test_a_reply_that_is_not_kept_is_found_behind_other_errors() -> None:
    lost = ReplyCacheError("disk full")
    assert unkept(wrapped(lost)) is lost
    assert unkept(InputError("x")) is None


FEW, MANY = 200, 800
MOST_GB, MOST_GROWTH = 1.0, 0.05


@pytest.mark.slow
def test_memory_does_not_grow_with_the_questions() -> None:
    command = ("-m", "tests.evaluation.runs.memory")
    few, many = (json.loads(run_python(*command, n, "closed-book,history-aware-rag").stdout) for n in (FEW, MANY))
    assert [(found["answered"], found["failed"]) for found in (few, many)] == [(2 * FEW, 0), (2 * MANY, 0)]
    assert many["gb"] < MOST_GB
    assert many["gb"] - few["gb"] < MOST_GROWTH
