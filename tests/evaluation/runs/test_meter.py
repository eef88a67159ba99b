"""What is counted of a question, whoever asks: a runnable, a graph, a retriever inside a retriever."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from langgraph_convcoa.evaluation.runs.run import Meter
from langgraph_convcoa.graph import build_graph
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan


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
