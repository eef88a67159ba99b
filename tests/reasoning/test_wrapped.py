"""Models in wrappers: what is inside them, the same wrappers around other models, and streams that are retried."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_openai import ChatOpenAI

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.reasoning.wrapped import ChatModel, changed, chat_models, retries
from tests.fakes import ScriptedModel

QUICK: dict[str, Any] = {"wait_exponential_jitter": False}


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
    with pytest.raises(ModelError, match="name it in the run's config"):
        changed(init_chat_model(), lambda model: model).invoke("?")


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


@pytest.mark.parametrize(
    ("model", "again"),
    [
        (ScriptedModel(), False),
        (named("a", max_retries=0), False),
        (named("a"), True),
        (ScriptedModel().with_retry(), True),
        (ScriptedModel().bind(x=1), False),
        (ScriptedModel().bind(x=1).with_retry().with_config(tags=["t"]), True),
        (ScriptedModel().with_fallbacks([ScriptedModel().with_retry()]), True),
        (ScriptedModel().with_fallbacks([ScriptedModel()]), False),
        (named("a", max_retries=0).configurable_fields(model_name=ConfigurableField("model")), False),
        (configurable(), True),
    ],
)
def test_whether_a_model_asks_again_by_itself(model: ChatModel, again: bool) -> None:
    assert retries(model) is again


def other(reply: str) -> Any:
    return lambda _: FakeListChatModel(responses=[reply])


def test_the_wrappers_stay_around_another_model() -> None:
    seen: list[Any] = []

    class Seen(FakeListChatModel):
        def _call(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> str:
            seen.append((stop, kwargs, run_manager.tags))
            return super()._call(messages, stop, run_manager, **kwargs)

    wrapped = named("a").bind(stop=["."], seed=3).with_config(tags=["mine"]).with_retry(**QUICK)
    assert changed(wrapped, lambda _: Seen(responses=["x"])).invoke("?", {"tags": ["run"]}).text == "x"
    assert seen == [(["."], {"seed": 3}, ["mine", "run"])]


def failing(*replies: Any) -> ScriptedModel:
    return ScriptedModel(replies=list(replies))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_retry_asks_until_a_reply_comes(asynchronous: bool, streamed: bool) -> None:
    inner = failing(ConnectionError("1"), ConnectionError("2"), "the reply")
    model = changed(inner.with_retry(stop_after_attempt=3, **QUICK), lambda model: model)
    assert await text(model, asynchronous, streamed) == "the reply"
    assert len(inner.prompts) == 3


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_retry_gives_up_as_it_was_told(asynchronous: bool, streamed: bool) -> None:
    inner = failing(ConnectionError("1"), ConnectionError("2"), "late")
    with pytest.raises(ConnectionError, match="2"):
        await text(changed(inner.with_retry(stop_after_attempt=2, **QUICK), lambda model: model), asynchronous, streamed)
    inner = failing(ValueError("wrong"), "late")
    only = inner.with_retry(retry_if_exception_type=(ConnectionError,), **QUICK)
    with pytest.raises(ValueError, match="wrong"):
        await text(changed(only, lambda model: model), asynchronous, streamed)


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_stream_that_has_begun_is_not_begun_again(asynchronous: bool) -> None:
    class Broken(ScriptedModel):
        def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            yield next(super()._stream(messages, stop, run_manager, **kwargs))
            raise ConnectionError("broken off")

    inner, fallback = Broken(replies=["one", "two"]), ScriptedModel(replies=["three"])
    for model in (inner.with_retry(**QUICK), inner.with_fallbacks([fallback])):
        with pytest.raises(ConnectionError, match="broken off"):
            await text(changed(model, lambda model: model), asynchronous, True)
    assert (len(inner.prompts), len(fallback.prompts)) == (2, 0), "each was asked once"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_the_next_model_is_asked_where_one_fails(asynchronous: bool, streamed: bool) -> None:
    chain = failing(ConnectionError()).with_fallbacks([failing(ConnectionError()), failing("third")])
    assert await text(changed(chain, lambda model: model), asynchronous, streamed) == "third"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_the_model_that_a_run_chooses_is_changed(asynchronous: bool, streamed: bool) -> None:
    def change(model: Any) -> Any:
        return FakeListChatModel(responses=[f"I am {model.model_name}"])

    config = {"configurable": {"model": "openai:d", "thread_id": "1"}}
    assert await text(changed(configurable(), change), asynchronous, streamed, config) == "I am d"
    assert await text(changed(configurable(), change), asynchronous, streamed) == "I am a"


async def text(model: Any, asynchronous: bool, streamed: bool, config: Any = None) -> str:
    if streamed and asynchronous:
        return "".join([piece.text async for piece in model.astream("?", config)])
    if streamed:
        return "".join(piece.text for piece in model.stream("?", config))
    return str((await model.ainvoke("?", config) if asynchronous else model.invoke("?", config)).text)
