"""Chat models as users have them: with fallbacks, retries, bound arguments and settings that a run chooses."""

from __future__ import annotations

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
_OF_THE_GRAPH = frozenset({"thread_id", "run_id", "assistant_id", "graph_id", "user_id", "langgraph_request_id"})
_OF_THE_GRAPH_PREFIXES = ("__", "checkpoint_", "langgraph_auth_")


def chat_models(model: object, config: RunnableConfig | None = None) -> list[BaseChatModel]:
    """The chat models inside the wrappers, in the order in which they are asked.

    If a run chooses a model's fields, `config` decides, or else the default. A model with neither is left out.

    Raises:
        ModelError: `model` is neither a chat model nor a wrapped one.
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
        return chat_models(model.prepare(own_config(config))[0] if config else model.default, config)
    if _is_configurable(model):
        chosen: Any = model
        try:
            return chat_models(chosen._model(own_config(config)), config)  # there is no public method
        except Exception:  # noqa: BLE001 - no model is chosen, or it cannot be built: the call reports it
            return []
    kind = type(model).__name__
    if isinstance(model, RunnableSequence):
        raise ModelError(f"a chain ({kind}) is no model: give the chat model in it, without prompt and parser ({_TAKEN})")
    raise ModelError(f"a model is a name or {_TAKEN}, not {kind}")


def own_config(config: RunnableConfig | None) -> RunnableConfig:
    """A configuration without LangGraph's own configurable values: a model with configurable_fields="any" would take them."""
    config = ensure_config(config)
    values = {
        name: value
        for name, value in config.get("configurable", {}).items()
        if name not in _OF_THE_GRAPH and not name.startswith(_OF_THE_GRAPH_PREFIXES)
    }
    return {**config, "configurable": values}


def retries(model: ChatModel) -> bool:
    """True if the model repeats failed requests itself: by `with_retry`, or by the `max_retries` of its client."""
    if isinstance(model, RunnableWithFallbacks):
        return any(retries(part) for part in model.runnables)
    if isinstance(model, RunnableBindingBase):
        return isinstance(model, RunnableRetry) or retries(model.bound)
    if isinstance(model, BaseChatModel):
        return bool(getattr(model, "max_retries", 0) != 0)
    return True if _is_configurable(model) else any(map(retries, chat_models(model)))


def retries_streams(model: object) -> bool:
    """True if `with_retry` is among the wrappers. It retries whole replies, and no streams."""
    while isinstance(model, RunnableBindingBase):
        if isinstance(model, RunnableRetry):
            return True
        model = model.bound
    return False


def falls_back(model: ChatModel, error: BaseException) -> bool:
    """True if the model has fallbacks for this error."""
    while isinstance(model, RunnableBindingBase):
        model = model.bound
    return isinstance(model, RunnableWithFallbacks) and isinstance(error, model.exceptions_to_handle)


def _is_configurable(model: object) -> bool:
    """True for the object that `init_chat_model` returns for configurable fields. Its class is not public."""
    return isinstance(model, Runnable) and type(model).__name__ == "_ConfigurableModel"
