"""Models in wrappers: what is inside them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_openai import ChatOpenAI

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.reasoning.models import chat_models


def named(name: str, **settings: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url="http://127.0.0.1:9/v1", api_key="x", **settings)


def names(model: Any, /, **chosen: Any) -> list[str]:
    config: Any = {"configurable": chosen} if chosen else None
    return [found.model_name for found in chat_models(model, config)]  # type: ignore[attr-defined]


def configurable(**settings: Any) -> Any:
    return init_chat_model("openai:a", configurable_fields=("model",), api_key="x", **settings)


def test_the_models_inside_in_the_order_they_are_asked() -> None:
    a, b, c = named("a"), named("b"), named("c")
    wrapped = a.bind(stop=["."]).with_config(tags=["t"]).with_fallbacks([b.with_retry(), c.with_types()])
    assert names(wrapped) == ["a", "b", "c"]
    assert names(wrapped.with_retry()) == ["a", "b", "c"]


def test_a_run_chooses_the_model() -> None:
    fields = named("a").configurable_fields(model_name=ConfigurableField("model"))
    either = named("a").configurable_alternatives(ConfigurableField("who"), b=named("b"), c=lambda: named("c"))
    assert (names(fields), names(fields, model="d")) == (["a"], ["d"])
    assert (names(either), names(either, who="b"), names(either, who="c")) == (["a"], ["b"], ["c"])
    assert (names(configurable()), names(configurable(), model="openai:d")) == (["a"], ["d"])
    assert names(configurable().with_fallbacks([named("b")]), model="openai:d") == ["d", "b"]


def test_a_model_that_takes_any_field_is_not_given_the_graphs_own() -> None:
    model = init_chat_model("openai:a", configurable_fields="any", api_key="x")
    [found] = chat_models(
        model, {"configurable": {"model": "openai:d", "thread_id": "1", "checkpoint_ns": "", "__pregel_x": 1}}
    )
    assert isinstance(found, ChatOpenAI)
    assert (found.model_name, found.model_kwargs) == ("d", {})


def test_a_configurable_model_without_a_default_is_not_known_before_it_is_chosen() -> None:
    assert chat_models(init_chat_model()) == []


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (ChatPromptTemplate.from_template("{q}") | named("a"), "a chain .* without prompt and parser"),
        (named("a") | StrOutputParser(), "a chain .* without prompt and parser"),
        (named("a").with_structured_output({"title": "x", "type": "object", "properties": {}}, include_raw=True), "a chain"),
        (named("a").with_fallbacks([named("b") | StrOutputParser()]), "a chain"),
        (RunnableLambda(lambda _: "x"), "not RunnableLambda"),
        (named("a").with_fallbacks([named("b")], exception_key="error"), "exception_key"),
        (3, "not int"),
    ],
)
def test_what_is_no_model_is_refused(other: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        chat_models(other)
