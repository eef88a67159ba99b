"""Chat models as users have them: with fallbacks, retries, bound arguments and settings that a run chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ensure_config
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.fallbacks import RunnableWithFallbacks
from langchain_core.runnables.retry import RunnableRetry

from langgraph_convcoa.errors import ModelError

ChatModel = Runnable[LanguageModelInput, Any]
"""A LangChain chat model, or one in wrappers: fallbacks, retries, bound arguments, a configuration, configurable fields."""

_TAKEN = "a chat model, also one with_fallbacks, with_retry, bind, with_config or configurable fields"
# What LangGraph itself puts among a run's configurable values; a model that takes "any" of them must not get these.
_OF_THE_GRAPH = frozenset({"thread_id", "run_id", "assistant_id", "graph_id", "user_id", "langgraph_request_id"})
_OF_THE_GRAPH_PREFIXES = ("__", "checkpoint_", "langgraph_auth_")


def chat_models(model: object, config: RunnableConfig | None = None) -> list[BaseChatModel]:
    """The chat models inside the wrappers, the one that is asked first in front.

    A model whose fields a run chooses is the one that `config` chooses, or its default; one without a default is left out.

    Raises:
        ModelError: It is no chat model, nor wrappers around one.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> first, second = FakeListChatModel(responses=["a"]), FakeListChatModel(responses=["b"])
        >>> [model.responses for model in chat_models(first.bind(stop=["."]).with_fallbacks([second.with_retry()]))]
        [['a'], ['b']]
    """
    if isinstance(model, BaseChatModel):
        return [model]
    if isinstance(model, RunnableWithFallbacks):
        if model.exception_key is not None:
            raise ModelError("a model's fallbacks cannot have an exception_key: they are asked with the same messages")
        return [found for part in model.runnables for found in chat_models(part, config)]
    if isinstance(model, RunnableBindingBase):
        return chat_models(model.bound, config)
    if isinstance(model, DynamicRunnable):
        return chat_models(_chosen(model, config)[0] if config else model.default, config)
    if _is_configurable(model):
        try:
            return chat_models(_chosen(model, config)[0], config)
        except ModelError:
            return []
    raise ModelError(_refusal(model))


def retries(model: ChatModel) -> bool:
    """Whether the model asks again by itself where a request fails: by `with_retry`, or as its client's `max_retries`."""
    if isinstance(model, RunnableWithFallbacks):
        return any(retries(part) for part in model.runnables)
    if isinstance(model, RunnableBindingBase):
        return isinstance(model, RunnableRetry) or retries(model.bound)
    if isinstance(model, BaseChatModel):
        return bool(getattr(model, "max_retries", 0) != 0)
    return True if _is_configurable(model) else any(map(retries, chat_models(model)))


def falls_back(model: ChatModel, error: BaseException) -> bool:
    """Whether the model has fallbacks that are asked after such an error."""
    while isinstance(model, RunnableBindingBase):
        model = model.bound
    return isinstance(model, RunnableWithFallbacks) and isinstance(error, model.exceptions_to_handle)


def changed(model: ChatModel, change: Callable[[BaseChatModel], ChatModel]) -> ChatModel:
    """The same wrappers around other models: `change` is given each chat model in them.

    Streams are retried as well as whole replies are, until the first piece has come (LangChain retries whole replies only).
    """
    if isinstance(model, BaseChatModel):
        return change(model)
    if isinstance(model, RunnableWithFallbacks):
        others = [changed(fallback, change) for fallback in model.fallbacks]
        return model.model_copy(update={"runnable": changed(model.runnable, change), "fallbacks": others})
    if isinstance(model, RunnableRetry):
        return _StreamRetry.of(model, changed(model.bound, change))
    if isinstance(model, RunnableBindingBase):
        return model.model_copy(update={"bound": changed(model.bound, change)})
    if isinstance(model, DynamicRunnable) or _is_configurable(model):
        return _Chosen(model, change)
    raise ModelError(_refusal(model))


class _StreamRetry(RunnableRetry[LanguageModelInput, Any]):
    """A `RunnableRetry` whose streams are retried too, while nothing of them has come."""

    @classmethod
    def of(cls, retry: RunnableRetry[Any, Any], bound: ChatModel) -> _StreamRetry:
        fields = {name: getattr(retry, name) for name in type(retry).model_fields}
        return cls.model_construct(_fields_set=set(fields), **{**fields, "bound": bound})

    def stream(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        config = ensure_config(config)
        for attempt in self._sync_retrying(reraise=True):
            with attempt:
                pieces = super().stream(input, config, **kwargs)
                first = next(pieces, None)
        if first is not None:
            yield first
            yield from pieces

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        config = ensure_config(config)
        async for attempt in self._async_retrying(reraise=True):
            with attempt:
                pieces = super().astream(input, config, **kwargs)
                first = await anext(pieces, None)
        if first is not None:
            yield first
            async for piece in pieces:
                yield piece


class _Chosen(Runnable[LanguageModelInput, Any]):
    """A model whose fields a run chooses, changed when it is known which model that is."""

    def __init__(self, model: ChatModel, change: Callable[[BaseChatModel], ChatModel]) -> None:
        self._model, self._change = model, change

    def _changed(self, config: RunnableConfig | None) -> tuple[ChatModel, RunnableConfig]:
        model, config = _chosen(self._model, config)
        return changed(model, self._change), config

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        model, config = self._changed(config)
        return model.invoke(input, config, **kwargs)

    async def ainvoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        # In a thread: building a client reads certificates.
        model, config = await asyncio.to_thread(self._changed, config)
        return await model.ainvoke(input, config, **kwargs)

    def stream(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        model, config = self._changed(config)
        yield from model.stream(input, config, **kwargs)

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        model, config = await asyncio.to_thread(self._changed, config)
        async for piece in model.astream(input, config, **kwargs):
            yield piece


def _is_configurable(model: object) -> bool:
    """Whether it is what `init_chat_model` gives for configurable fields, which has no public class."""
    return isinstance(model, Runnable) and type(model).__name__ == "_ConfigurableModel"


def _chosen(model: Any, config: RunnableConfig | None) -> tuple[ChatModel, RunnableConfig]:
    """The model that a configuration chooses, and the configuration to ask it with.

    Raises:
        ModelError: It chooses none that can be built.
    """
    config = ensure_config(config)
    try:
        if isinstance(model, DynamicRunnable):
            return model.prepare(config)
        values = {name: value for name, value in config.get("configurable", {}).items() if not _of_the_graph(name)}
        return model._model({**config, "configurable": values}), config  # there is no public way
    except Exception as error:
        lines = str(error).strip().splitlines()
        why = lines[0][:200] if lines else type(error).__name__
        raise ModelError(
            f'the configurable model cannot be built: {why}; name it in the run\'s config, such as {{"configurable": '
            '{"model": "openai:gpt-4.1-mini"}}, or give it a default'
        ) from error


def _of_the_graph(name: str) -> bool:
    return name in _OF_THE_GRAPH or name.startswith(_OF_THE_GRAPH_PREFIXES)


def _refusal(model: object) -> str:
    kind = type(model).__name__
    if isinstance(model, RunnableSequence):
        return f"a chain ({kind}) is no model: give the chat model in it, without prompt and parser ({_TAKEN})"
    return f"a model is a name or {_TAKEN}, not {kind}"
