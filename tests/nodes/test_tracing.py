"""The facts in the trace of a turn, as OpenTelemetry exports them through the SDK of LangSmith."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from langchain_core.documents import Document
from langchain_core.tracers import LangChainTracer
from langsmith import Client
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from langgraph_convcoa.graph import build_graph
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan, turn

WHEN = "When was the Hopfield network described?"
OTHER = "What does the wiki say?"
REPLIES = [plan(node(WHEN), node(OTHER, "Much.", "wiki")), corrections("In 1982.", final="It was described in 1982 [1].")]


class Broken:
    name = "wiki"
    description = "searches the wiki, which is down"

    async def retrieve(self, request: Any) -> list[Document]:
        raise RuntimeError("down")


async def traced(question: str, plain: bool = False, *, client: Any = None, **parts: Any) -> tuple[Any, list[ReadableSpan]]:
    """The output of a turn of a graph, and the spans of its trace."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # Nothing is sent to LangSmith: no server is at this address.
    sender = Client(api_url="http://127.0.0.1:9", tracing_mode="otel", otel_tracer_provider=provider, **(client or {}))
    tracer = LangChainTracer(client=sender)
    graph = build_graph(retriever=KeywordRetriever(), **parts).compile()
    out = await turn(graph, question, {"callbacks": [tracer]}, asynchronous=not plain)
    tracer.wait_for_futures()
    sender.flush()
    return out, list(exporter.get_finished_spans())


@pytest.mark.parametrize("plain", [False, True])
async def test_each_node_of_a_trace_tells_its_sub_questions_their_status_and_evidence(plain: bool) -> None:
    out, found = await traced("When?", plain, model=ScriptedModel(replies=REPLIES), actions=[Broken()])
    spans = {span.name: facts_of(span) for span in found}

    assert spans["look"]["convcoa.status"] == "found"
    assert [spans["plan"][f"convcoa.{number}.sub_question"] for number in (1, 2)] == [WHEN, OTHER]
    branch = spans["knowledge_retrieval"]
    assert (branch["convcoa.sub_question"], branch["convcoa.status"]) == (WHEN, "found")
    assert "hopfield-1982" in json.loads(branch["convcoa.evidence"])
    failed = spans["__error_handler__wiki"]
    assert (failed["convcoa.sub_question"], failed["convcoa.status"]) == (OTHER, "failed")
    assert spans["verify"]["convcoa.1.status"] == "unsupported"
    for number, item in enumerate(out["chain"], start=1):
        for name in ("correct", "remember"):
            assert spans[name][f"convcoa.{number}.status"] == item["status"]
            assert spans[name][f"convcoa.{number}.score"] == item["score"]
            assert json.loads(spans[name][f"convcoa.{number}.evidence"]) == item["evidence"]
    assert [item["status"] for item in out["chain"]] == ["filled", "failed"]
    assert spans["recall"] == {}


async def test_where_inputs_are_hidden_no_words_are_told() -> None:
    _, spans = await traced(WHEN, client={"hide_inputs": True, "hide_outputs": True})
    assert not [span.name for span in spans if "Hopfield" in str(dict(span.attributes or {}))]
    [last] = [facts_of(span) for span in spans if span.name == "remember"]
    assert last["convcoa.1.status"] == "filled"


def facts_of(span: ReadableSpan) -> dict[str, Any]:
    start = "langsmith.metadata."
    attributes = {name.removeprefix(start): value for name, value in (span.attributes or {}).items() if name.startswith(start)}
    return {name: value for name, value in attributes.items() if name.startswith("convcoa.")}
