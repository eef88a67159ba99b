"""The whole graph against a server on loopback that speaks the OpenAI wire format: what goes right, and what can go wrong."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import build_graph
from langgraph_convcoa.errors import ModelError
from tests.fakes import KeywordRetriever, corrections, direct, node, plan
from tests.openai_server import OpenAIServer, Reply, kind_of

HOPFIELD = "John Hopfield described the Hopfield network in 1982."
SUB = "When was the Hopfield network described?"
KEY = "sk-secret-0123456789"
THREAD = {"configurable": {"thread_id": "a"}}


def graph_for(server: OpenAIServer, **settings: Any) -> Any:
    settings = {"max_retries": 0, "timeout": 5, **settings}
    model = ChatOpenAI(model="test", base_url=server.base_url, api_key=KEY, **settings)
    return build_graph(model=model, retriever=KeywordRetriever()).compile(checkpointer=InMemorySaver())


def ask(graph: Any, question: str = "When was it?", thread: str = "a", **more: Any) -> dict[str, Any]:
    return dict(graph.invoke({"question": question}, {"configurable": {"thread_id": thread}}, **more))


def by_kind(**replies: Reply | str) -> Any:
    """A script that answers each kind of prompt in its way."""
    defaults: dict[str, Reply | str] = {
        "plan": plan(node(SUB)),
        "plan_initial": plan(node(SUB)),
        "plan_normal": plan(node(SUB)),
        "repair": plan(node(SUB)),
        "correct": corrections(HOPFIELD, final="It was described in 1982 [1]."),
    }
    return lambda body: {**defaults, **replies}[kind_of(body)]


def test_two_calls_with_schemas_and_counted_tokens() -> None:
    with OpenAIServer(by_kind()) as server:
        out = ask(graph_for(server))
    assert out["answer"] == "It was described in 1982 [1]."
    assert [kind_of(body) for body in server.requests] == ["plan", "correct"]
    assert [body.get("response_format", {}).get("type") for body in server.requests] == ["json_schema", "json_schema"]
    assert (out["usage"]["llm_calls"], out["usage"]["input_tokens"], out["usage"]["output_tokens"]) == (2, 200, 40)
    assert out["usage"]["parts"]["reply"] == 40


@pytest.mark.parametrize("asynchronous", [True, False])
def test_streaming_shows_the_answer_only_and_counts_the_same(asynchronous: bool) -> None:
    config = {"configurable": {"thread_id": "a"}}
    with OpenAIServer(
        by_kind(correct=corrections(HOPFIELD, final="It was described in 1982 [1] [4]. It stores patterns."))
    ) as server:
        graph = graph_for(server)

        async def collect() -> list[Any]:
            return [p async for p in graph.astream({"question": "When was it?"}, config, stream_mode=["messages", "values"])]

        if asynchronous:
            parts = asyncio.run(collect())
        else:
            parts = list(graph.stream({"question": "When was it?"}, config, stream_mode=["messages", "values"]))
    final = parts[-1][1]
    assert "".join(part[0].text for mode, part in parts if mode == "messages") == final["answer"]
    assert final["answer"] == "It was described in 1982 [1]. It stores patterns [1]."
    assert (final["usage"]["llm_calls"], final["usage"]["input_tokens"]) == (2, 200)
    assert server.requests[-1]["stream"] is True


def test_a_server_without_response_format_is_asked_for_json_in_the_prompt() -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("no such field", status=400) if "response_format" in body else by_kind()(body)

    with OpenAIServer(script) as server:
        graph = graph_for(server)
        assert ask(graph)["answer"] == "It was described in 1982 [1]."
        before = len(server.requests)
        assert before == 3, "the rejected request counts once"
        assert ask(graph, thread="b")["usage"]["llm_calls"] == 2, "it is not tried again"


def test_a_server_that_rejects_stream_options_streams_without() -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("unknown field stream_options", status=400) if "stream_options" in body else by_kind()(body)

    with OpenAIServer(script) as server:
        parts = list(graph_for(server).stream({"question": "When was it?"}, THREAD, stream_mode="messages"))
    assert "".join(part[0].text for part in parts) == "It was described in 1982 [1]."


def test_usage_is_estimated_where_the_server_reports_none() -> None:
    with OpenAIServer(by_kind(correct=Reply(corrections(HOPFIELD, final="In 1982."), usage=None))) as server:
        correct = ask(graph_for(server))["usage"]["per_node"]["correct"]
    assert correct["llm_calls"] == 1
    assert correct["input_tokens"] > 50
    assert correct["output_tokens"] > 0


GOOD = json.loads(plan(node(SUB)))
MALFORMED = {
    "code fence": f"Here you are:\n```json\n{json.dumps(GOOD)}\n```\nAnything else?",
    "single quotes": str(GOOD).replace("True", "true"),
    "python flags": str(GOOD),
    "trailing commas": json.dumps(GOOD).replace("}]", ",},]"),
    "truncated": json.dumps(GOOD)[:-40],
    "flag as text True": json.dumps({"chain": [{"action": "x", "Sub": SUB, "Guess_answer": "wrong", "Missing_flag": "True"}]}),
    "flag as text true": json.dumps({"chain": [{"action": "x", "sub": SUB, "guess_answer": "wrong", "missing_flag": "true"}]}),
    "unknown action": json.dumps({"chain": [{"action": "Oracle", "Sub": SUB}]}),
    "nested lists": json.dumps({"chain": [[[{"Action": "Knowledge-retrieval", "Sub": SUB}]]]}),
    "bare list": json.dumps([{"action": "Knowledge", "sub_question": SUB}]),
    "strings for nodes": json.dumps({"chain": [SUB]}),
    "the paper's shape": '{"question": {"optimized_question": "When?"}, "chain": {"action": "Knowledge-retrieval", "Sub": "'
    + SUB
    + '", "guess_answer": ""}, "final_answer": ""}',
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_plans_are_read_without_a_repair(text: str) -> None:
    with OpenAIServer(by_kind(plan=text)) as server:
        out = ask(graph_for(server))
    assert [kind_of(body) for body in server.requests] == ["plan", "correct"]
    assert [(item["sub_question"], item["action"], item["status"]) for item in out["chain"]] == [
        (SUB, "knowledge_retrieval", "filled")
    ]


@pytest.mark.parametrize(
    "text", ["I would look it up in a book.", "", "I cannot help with that.", "{}", "[]", "null", "42", '{"a": 1}']
)
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
    assert out["answer"] == "It was described in 1982 [1]."


def test_a_plan_cut_off_by_its_length_limit_is_read_as_far_as_it_goes() -> None:
    with OpenAIServer(by_kind(plan=Reply(json.dumps(GOOD)[:-30], finish_reason="length"))) as server:
        out = ask(graph_for(server))
    assert out["chain"][0]["sub_question"] == SUB


@pytest.mark.parametrize(("nodes", "kept"), [(0, 1), (50, 6)])
def test_chains_of_any_length(nodes: int, kept: int) -> None:
    chain = plan(*(node(f"Hopfield network {n}?") for n in range(nodes)))
    with OpenAIServer(by_kind(plan=chain, correct=corrections(*[HOPFIELD] * kept))) as server:
        out = ask(graph_for(server))
    assert len(out["chain"]) == kept
    assert out["answer"]


@pytest.mark.parametrize("text", ["", '{"answers": "x"}', '{"answers": [{"index": 7, "answer": "x"}]}'])
def test_malformed_corrections_leave_the_best_evidence(text: str) -> None:
    with OpenAIServer(by_kind(correct=text)) as server:
        out = ask(graph_for(server))
    assert out["chain"][0]["status"] == "partial"
    assert out["chain"][0]["answer"] == HOPFIELD


FAILURES = [
    (Reply(f"Incorrect API key provided: {KEY}", status=401), "refused the key"),
    (Reply("no such model", status=404), "does not exist"),
    (Reply("slow down", status=429, headers={"Retry-After": "0"}), "rate limit"),
    (Reply("oops", status=500), "server's side"),
    (Reply("oops", status=503), "server's side"),
    (Reply(drop=True), "cannot reach"),
    (Reply("late", delay=1.0), "in time"),
]


@pytest.mark.parametrize(("reply", "message"), FAILURES, ids=lambda value: str(getattr(value, "status", value)))
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_failing_model_is_one_clear_line_and_the_turn_can_go_on(reply: Reply, message: str, asynchronous: bool) -> None:
    state = {"fail": True}

    def script(body: dict[str, Any]) -> Reply | str:
        return reply if state["fail"] else by_kind()(body)

    config = {"configurable": {"thread_id": "a"}}
    with OpenAIServer(script) as server:
        graph = graph_for(server, timeout=0.5)
        with pytest.raises(ModelError, match=message) as caught:
            if asynchronous:
                asyncio.run(graph.ainvoke({"question": "When was it?"}, config))
            else:
                ask(graph)
        assert "\n" not in str(caught.value)
        assert KEY not in str(caught.value)
        state["fail"] = False
        out = asyncio.run(graph.ainvoke(None, config)) if asynchronous else graph.invoke(None, config)
    assert out["answer"] == "It was described in 1982 [1]."
    assert len(out["knowledge_set"]["Contextual knowledge set"]) == 1


def test_retry_after_is_honoured_by_the_client() -> None:
    replies = [Reply("slow down", status=429, headers={"Retry-After": "1"}), plan(node(SUB, HOPFIELD), final=HOPFIELD)]
    with OpenAIServer(replies) as server:
        start = time.monotonic()
        out = ask(graph_for(server, max_retries=2))
        waited = time.monotonic() - start
    assert waited >= 1
    assert out["chain"][0]["status"] == "kept"


def test_nobody_listens() -> None:
    with OpenAIServer([]) as server:
        address = server.base_url
    graph = build_graph(model="some-model", base_url=address, retriever=KeywordRetriever()).compile()
    with pytest.raises(ModelError, match="cannot reach the model 'some-model' at http"):
        graph.invoke({"question": "When was it?"})


def test_an_answer_that_breaks_off_is_an_error_and_not_half_an_answer() -> None:
    with OpenAIServer(by_kind(plan=plan(node(SUB, HOPFIELD)), correct=Reply(drop=True))) as server:
        graph = graph_for(server)
        with pytest.raises(ModelError):
            list(graph.stream({"question": "When was it?"}, {"configurable": {"thread_id": "a"}}, stream_mode="messages"))
        assert "answer" not in graph.get_state({"configurable": {"thread_id": "a"}}).values


def test_concurrent_first_calls_all_fall_back_from_schemas() -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("no such field", status=400) if "response_format" in body else by_kind()(body)

    async def main(graph: Any) -> list[dict[str, Any]]:
        return await asyncio.gather(
            *(graph.ainvoke({"question": "When was it?"}, {"configurable": {"thread_id": str(n)}}) for n in range(4))
        )

    with OpenAIServer(script) as server:
        answers = asyncio.run(main(graph_for(server)))
    assert [out["answer"] for out in answers] == ["It was described in 1982 [1]."] * 4


def test_a_request_that_is_rejected_either_way_does_not_give_schemas_up() -> None:
    state = {"reject": True}

    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("too long", status=400) if state["reject"] else by_kind()(body)

    with OpenAIServer(script) as server:
        graph = graph_for(server)
        with pytest.raises(ModelError, match="rejected"):
            ask(graph)
        state["reject"] = False
        ask(graph)
    assert "response_format" in server.requests[2]


@pytest.mark.parametrize("streamed", [True, False])
def test_what_a_model_thinks_aloud_is_nobodys_answer(streamed: bool) -> None:
    replies = {"plan": plan(node(SUB)), "correct": corrections(HOPFIELD, final="It was described in 1982 [1].")}
    thinking = {kind: f"<think>\nLet me see [1].\n</think>\n\n{text}" for kind, text in replies.items()}
    with OpenAIServer(by_kind(**thinking)) as server:
        graph = graph_for(server)
        if streamed:
            parts = list(
                graph.stream({"question": "When was it?"}, {"configurable": {"thread_id": "a"}}, stream_mode="messages")
            )
            answer = "".join(part[0].text for part in parts)
        else:
            answer = ask(graph)["answer"]
    assert answer == "It was described in 1982 [1]."
    assert len(server.requests) == 2


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
                assert piece != reply.text[:cut] or seen.wait(30), "nothing was shown while the reply was being written"
            handler.wfile.write(b"data: [DONE]\n\n")
            handler.close_connection = True

    shown = ""
    with Slow([reply]) as server:
        graph = graph_for(server, timeout=60)
        for part in graph.stream({"question": SUB}, {"configurable": {"thread_id": "a"}}, stream_mode="messages"):
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


@pytest.mark.parametrize(("status", "resumed"), [(500, False), (401, True)])
def test_failed_attempts_count_when_they_are_repeated_or_resumed(status: int, resumed: bool) -> None:
    replies: list[Reply | str] = [
        plan(node(SUB, HOPFIELD)),
        Reply("oops", status=status),
        corrections(final="It was described in 1982 [1]."),
    ]
    with OpenAIServer(replies) as server:
        graph = graph_for(server)
        if resumed:
            with pytest.raises(ModelError):
                ask(graph)
            out = graph.invoke(None, {"configurable": {"thread_id": "a"}})
        else:
            out = ask(graph)
    assert out["usage"]["llm_calls"] == len(server.requests) == 3
