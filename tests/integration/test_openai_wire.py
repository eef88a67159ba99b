"""The whole graph against a server on loopback that speaks the OpenAI wire format: what goes right, and what can go wrong."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import build_graph
from langgraph_convcoa.errors import ModelError
from tests.bounds import SECONDS
from tests.fakes import KeywordRetriever, corrections, direct, node, plan, turn
from tests.openai_server import OpenAIServer, Reply, kind_of

HOPFIELD = "John Hopfield described the Hopfield network in 1982."
SUB = "When was the Hopfield network described?"
KEY = "sk-secret-0123456789"
ANSWER = "It was described in 1982 [1]."
THREAD: Any = {"configurable": {"thread_id": "a"}}


def graph_for(server: OpenAIServer, saver: Any = None, **settings: Any) -> Any:
    model = server.model(api_key=KEY, **settings)
    return build_graph(model=model, retriever=KeywordRetriever()).compile(checkpointer=saver or InMemorySaver())


def ask(graph: Any, question: str = "When was it?") -> dict[str, Any]:
    return dict(graph.invoke({"question": question}, THREAD))


def by_kind(**replies: Reply | str) -> Any:
    defaults: dict[str, Reply | str] = {
        "plan": plan(node(SUB)), "plan_initial": plan(node(SUB)), "plan_normal": plan(node(SUB)), "repair": plan(node(SUB)),
        "correct": corrections(HOPFIELD, final=ANSWER),
    }  # fmt: skip
    return lambda body: {**defaults, **replies}[kind_of(body)]


def test_two_calls_with_schemas_and_counted_tokens() -> None:
    with OpenAIServer(by_kind()) as server:
        out = ask(graph_for(server))
    assert out["answer"] == ANSWER
    assert [kind_of(body) for body in server.requests] == ["plan", "correct"]
    assert [body.get("response_format", {}).get("type") for body in server.requests] == ["json_schema", "json_schema"]
    assert (out["usage"]["llm_calls"], out["usage"]["input_tokens"], out["usage"]["output_tokens"]) == (2, 200, 40)


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_streaming_shows_the_answer_only_and_counts_the_same(asynchronous: bool) -> None:
    replies = by_kind(correct=corrections(HOPFIELD, final="It was described in 1982 [1] [4]. It stores patterns."))
    with OpenAIServer(replies) as server:
        out = await turn(graph_for(server), "When was it?", THREAD, asynchronous=asynchronous, streamed=True)
    assert out["answer"] == "It was described in 1982 [1]. It stores patterns [1]."
    assert (out["usage"]["llm_calls"], out["usage"]["input_tokens"]) == (2, 200)
    assert server.requests[-1]["stream"] is True


@pytest.mark.parametrize("text", ["I would look it up in a book.", "", "[]", '{"a": 1}'])
def test_a_plan_without_json_costs_one_repair(text: str) -> None:
    with OpenAIServer(by_kind(plan=text)) as server:
        out = ask(graph_for(server))
    assert [kind_of(body) for body in server.requests] == ["plan", "repair", "correct"]
    assert out["chain"][0]["sub_question"] == SUB
    assert out["usage"]["llm_calls"] == 3


def test_a_plan_that_cannot_be_repaired_becomes_one_node() -> None:
    with OpenAIServer(by_kind(plan="prose", repair="more prose")) as server:
        out = ask(graph_for(server), "When was the Hopfield network described?")
    assert [item["sub_question"] for item in out["chain"]] == ["When was the Hopfield network described?"]
    assert out["answer"] == ANSWER


@pytest.mark.parametrize("text", ["", '{"answers": "x"}', '{"answers": [{"index": 7, "answer": "x"}]}'])
def test_malformed_corrections_leave_the_best_evidence(text: str) -> None:
    with OpenAIServer(by_kind(correct=text)) as server:
        out = ask(graph_for(server))
    assert out["chain"][0]["status"] == "partial"
    assert out["chain"][0]["answer"] == HOPFIELD


FAILURES = [
    (Reply(f"Incorrect API key provided: {KEY}", status=401), "refused the key"),
    (Reply("no such model", status=404), "does not exist"),
    (Reply("slow down", status=429, headers={"Retry-After": "0"}), "rate limit"), (Reply("oops", status=500), "server's side"),
    (Reply("oops", status=503), "server's side"), (Reply(drop=True), "cannot reach"),
    (Reply("late", delay=10 * SECONDS), "in time"),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "message"), FAILURES, ids=lambda value: str(getattr(value, "status", value)))
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_failing_model_is_one_clear_line_and_the_turn_can_go_on(
    reply: Reply, message: str, asynchronous: bool
) -> None:
    state = {"fail": True}

    def script(body: dict[str, Any]) -> Reply | str:
        return reply if state["fail"] else by_kind()(body)

    with OpenAIServer(script) as server:
        graph = graph_for(server, timeout=1 if reply.delay else SECONDS)
        with pytest.raises(ModelError, match=message) as caught:
            await turn(graph, "When was it?", THREAD, asynchronous=asynchronous)
        assert "\n" not in str(caught.value)
        assert KEY not in str(caught.value)
        state["fail"] = False
        out = await turn(graph_for(server, graph.checkpointer), None, THREAD, asynchronous=asynchronous)
    assert out["answer"] == ANSWER
    assert len(out["knowledge_set"]["Contextual knowledge set"]) == 1


def test_an_answer_that_breaks_off_is_an_error_and_not_half_an_answer() -> None:
    with OpenAIServer(by_kind(plan=plan(node(SUB, HOPFIELD)), correct=Reply(drop=True))) as server:
        graph = graph_for(server)
        with pytest.raises(ModelError):
            list(graph.stream({"question": "When was it?"}, THREAD, stream_mode="messages"))
        assert "answer" not in graph.get_state(THREAD).values


def test_the_first_sentence_is_shown_before_the_call_has_ended() -> None:
    """The server holds the end of its reply back until a reader has the beginning: without that the turn would not end."""
    seen = threading.Event()
    first, rest = "It was described in 1982 [1].", "It stores patterns as minima of an energy function [1]."
    reply = direct(f"{first} {rest}", SUB)

    class Slow(OpenAIServer):
        def _send(self, handler: Any, body: dict[str, Any], reply: Reply) -> None:
            cut = reply.text.index("energy")
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.end_headers()
            for piece in (reply.text[:cut], reply.text[cut:]):
                chunk = {"id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m"}
                choice = {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}
                handler.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
                handler.wfile.flush()
                assert piece != reply.text[:cut] or seen.wait(SECONDS), "nothing was shown while the reply was being written"
            handler.wfile.write(b"data: [DONE]\n\n")
            handler.close_connection = True

    shown = ""
    with Slow([reply]) as server:
        graph = graph_for(server)
        for part in graph.stream({"question": SUB}, THREAD, stream_mode="messages"):
            shown += part[0].text
            if shown == first:
                seen.set()
    assert seen.is_set()
    assert shown == f"{first} {rest}"


def test_a_page_instead_of_an_api_says_so() -> None:
    class Html(OpenAIServer):
        def _send(self, handler: Any, body: dict[str, Any], reply: Reply) -> None:
            handler.send_response(200)
            handler.send_header("Content-Type", "text/html")
            handler.end_headers()
            handler.wfile.write(b"<html>Welcome</html>")

    with Html(["x"] * 9) as server, pytest.raises(ModelError) as caught:
        ask(graph_for(server))
    assert "\n" not in str(caught.value)


def test_failed_attempts_count_when_they_are_resumed() -> None:
    replies: list[Reply | str] = [plan(node(SUB, HOPFIELD)), Reply("oops", status=401), corrections(final=ANSWER)]
    with OpenAIServer(replies) as server:
        graph = graph_for(server)
        with pytest.raises(ModelError):
            ask(graph)
        out = graph.invoke(None, THREAD)
    assert out["usage"]["llm_calls"] == len(server.requests) == 3
