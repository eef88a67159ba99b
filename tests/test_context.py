from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from langgraph_convcoa import ConvCoAContext, build_graph
from tests.fakes import KeywordRetriever


@pytest.mark.parametrize(
    "settings",
    [
        {"k": 0},
        {"threshold": 1.5},
        {"weights": (0.5, 0.5, 0.5)},
        {"weights": (1.5, -0.5, 0.0)},
        {"unknown": 1},
        {"action_timeout": 0},
        {"knowledge_retrieval": {"k": 0}},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ConvCoAContext(**settings)


def test_studio_learns_where_a_setting_belongs() -> None:
    schema = ConvCoAContext.model_json_schema()["properties"]
    assert schema["model"]["langgraph_nodes"] == ["plan", "correct", "answer"]
    assert all(entry.get("description") for entry in schema.values())


def test_the_graph_describes_its_input_output_and_settings() -> None:
    graph = build_graph(retriever=KeywordRetriever()).compile()
    assert set(graph.get_input_jsonschema()["properties"]) == {"question", "messages"}
    output = set(graph.get_output_jsonschema()["properties"])
    assert output == {"answer", "citations", "chain", "knowledge_set", "usage", "messages"}
    assert "knowledge_retrieval" in (graph.get_context_jsonschema() or {})["properties"]


def test_the_nodes_bear_the_names_of_the_algorithm() -> None:
    nodes = set(build_graph(retriever=KeywordRetriever()).compile().get_graph().nodes)
    assert {"recall", "plan", "knowledge_retrieval", "verify", "correct", "answer", "remember"} <= nodes


def test_the_action_has_settings_of_its_own() -> None:
    retriever = KeywordRetriever()
    graph = build_graph(retriever=retriever).compile()
    words = {"question": "Hopfield network sparsemax dense passage 2016 2020 nobel physics"}
    assert len(graph.invoke(words, context={"k": 3})["chain"][0]["evidence"]) == 3
    assert len(graph.invoke(words, context={"k": 3, "knowledge_retrieval": {"k": 1}})["chain"][0]["evidence"]) == 1
