from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from pydantic import BaseModel, ConfigDict, ValidationError

from langgraph_convcoa import ActionRequest, ConvCoAContext, build_graph
from langgraph_convcoa.errors import InputError
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


def test_a_node_has_its_own_model_or_the_one_of_the_run_and_studio_learns_where_a_setting_belongs() -> None:
    schema = ConvCoAContext.model_json_schema()["properties"]
    assert all(entry.get("description") for entry in schema.values())
    assert schema["model"]["langgraph_nodes"] == ["plan", "correct"]
    assert all(schema[f"{node}_model"]["langgraph_nodes"] == [node] for node in ("plan", "correct", "repair"))
    context = ConvCoAContext(model="a", correct_model="b")
    assert [context.model_of(node) for node in ("plan", "correct", "repair")] == ["a", "b", "a"]
    assert ConvCoAContext().model_of("plan") is None


def test_the_graph_describes_its_input_output_and_settings() -> None:
    graph = build_graph(retriever=KeywordRetriever()).compile()
    assert set(graph.get_input_jsonschema()["properties"]) == {"question", "messages"}
    output = set(graph.get_output_jsonschema()["properties"])
    assert output == {"answer", "clarification", "unsupported", "citations", "chain", "knowledge_set", "usage", "messages"}
    assert "knowledge_retrieval" in (graph.get_context_jsonschema() or {})["properties"]


def test_the_action_has_settings_of_its_own() -> None:
    retriever = KeywordRetriever()
    graph = build_graph(retriever=retriever).compile()
    words = {"question": "Hopfield network sparsemax dense passage 2016 2020 nobel physics"}
    assert len(graph.invoke(words, context={"k": 3})["chain"][0]["evidence"]) == 3
    assert len(graph.invoke(words, context={"k": 3, "knowledge_retrieval": {"k": 1}})["chain"][0]["evidence"]) == 1


class Prices:
    """A user's action with settings."""

    class Settings(BaseModel):
        model_config = ConfigDict(extra="forbid")
        currency: str = "EUR"

    name, description, settings = "prices", "prices of goods", Settings

    def __init__(self) -> None:
        self.requests: list[ActionRequest] = []

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        self.requests.append(request)
        return [Document("A mug costs 8.", id="mug")]


def test_an_action_of_a_users_own_has_settings_under_its_name() -> None:
    prices = Prices()
    graph = build_graph(actions=[prices], context={"prices": {"currency": "CHF"}}).compile()
    schema = graph.get_context_jsonschema() or {}
    assert schema["properties"]["prices"]["langgraph_nodes"] == ["prices"]
    for context in ({}, {"prices": {"currency": "USD"}}, ConvCoAContext(k=1)):
        graph.invoke({"question": "What does a mug cost?"}, context=context or None)
    assert [request.settings for request in prices.requests] == [{"currency": "CHF"}, {"currency": "USD"}, {}]
    with pytest.raises(ValidationError):
        graph.invoke({"question": "What does a mug cost?"}, context={"prices": {"colour": "red"}})
    with pytest.raises(InputError, match=r"prices\.colour"):
        build_graph(actions=[prices], context={"prices": {"colour": "red"}})


def test_an_action_with_settings_cannot_take_the_name_of_another_setting() -> None:
    prices = Prices()
    prices.name = "threshold"
    with pytest.raises(InputError, match="threshold"):
        build_graph(actions=[prices])
