"""Loading of chat models by name, the models inside wrappers such as fallbacks, and one-line messages for failures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ensure_config
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.fallbacks import RunnableWithFallbacks

from langgraph_convcoa.errors import ModelError, first_line, secrets_of

ChatModel = Runnable[LanguageModelInput, Any]
"""A LangChain chat model, bare or in wrappers: fallbacks, retries, bound arguments, a configuration, configurable fields."""

_TAKEN = "a chat model, also one with_fallbacks, with_retry, bind, with_config or configurable fields"
_OF_THE_GRAPH = frozenset({"thread_id", "run_id", "assistant_id", "graph_id", "user_id", "langgraph_request_id"})
_OF_THE_GRAPH_PREFIXES = ("__", "checkpoint_", "langgraph_auth_")
_Given = TypeVar("_Given", bound=ChatModel)
_TIMEOUT_SECONDS = 60.0
_LOCAL = "huggingface"


def load_chat_model(
    model: str | _Given,
    *,
    base_url: str | None = None,
    load_in_8bit: bool = False,
    adapter: str | Path | None = None,
    **settings: Any,
) -> BaseChatModel | _Given:
    """Build a chat model. Raises ModelError if it cannot be built.

    Args:
        model: A LangChain chat model, bare or in wrappers (returned unchanged); an `init_chat_model` name such as
            "openai:gpt-4.1-mini"; or "huggingface:PATH_OR_NAME" for a local transformers model.
        base_url: An OpenAI-compatible server (vLLM, Ollama, llama.cpp, LM Studio), which needs no key.
        load_in_8bit: Load a local model with bitsandbytes (extra `int8`).
        adapter: Folder of a LoRA adapter for a local model (extra `grpo`).
        settings: Further arguments of the model's class.
    """
    if adapter is not None and not (isinstance(model, str) and model.strip().startswith(f"{_LOCAL}:")):
        raise ModelError(f'adapter is for local models: give "{_LOCAL}:PATH_OR_NAME", or serve the adapter and name it')
    if not isinstance(model, str):
        chat_models(model)
        return model
    if not (name := model.strip()):
        raise ModelError('the model name is empty: give one such as "openai:gpt-4.1-mini"')
    if name.startswith(f"{_LOCAL}:"):
        return _load_transformers(name.split(":", 1)[1], load_in_8bit=load_in_8bit, adapter=adapter, **settings)
    if load_in_8bit:
        raise ModelError(f'load_in_8bit is for local models: write "{_LOCAL}:PATH_OR_NAME" instead of {name!r}')
    options = {"temperature": 0, "timeout": _TIMEOUT_SECONDS, **settings}
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise ModelError(f"the base URL must start with http:// or https://, not {base_url[:80]!r}")
    try:
        if base_url is not None:
            from langchain_openai import ChatOpenAI

            options.setdefault("api_key", os.environ.get("OPENAI_API_KEY") or "none")
            return ChatOpenAI(model=name.removeprefix("openai:"), base_url=base_url, **options)
        from langchain.chat_models import init_chat_model

        built: BaseChatModel = init_chat_model(name, **options)
        return built
    except ImportError as error:
        raise ModelError(f"the model {name!r} needs a package that is not installed: {first_line(error)}") from error
    except Exception as error:
        message = f"cannot build the model {name!r}: {first_line(error)}"
        if "api_key" in str(error).lower() or "credentials" in str(error).lower():
            provider = name.split(":", 1)[0].upper() if ":" in name else "OPENAI"
            message = f"no key for the model {name!r}: set {provider}_API_KEY, or give --base-url for a local server"
        elif isinstance(error, ValueError):
            message = f'unknown model {name!r}: write PROVIDER:NAME such as "openai:gpt-4.1-mini"'
        raise ModelError(message) from error


def _load_transformers(name: str, *, load_in_8bit: bool, adapter: str | Path | None = None, **settings: Any) -> BaseChatModel:
    try:
        from langchain_huggingface import ChatHuggingFace, HuggingFacePipeline
    except ImportError as error:
        raise ModelError('a local model needs langchain-huggingface: pip install "langgraph-convcoa[local]"') from error
    model_settings: dict[str, Any] = {}
    if load_in_8bit:
        try:
            import bitsandbytes  # noqa: F401
            from transformers import BitsAndBytesConfig
        except ImportError as error:
            raise ModelError('8-bit loading needs bitsandbytes: pip install "langgraph-convcoa[int8]"') from error
        model_settings["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)  # type: ignore[no-untyped-call]
    # The chat template writes the special tokens that begin a prompt. The tokenizer must not write them again.
    generation = {"max_new_tokens": 1024, "do_sample": False, "return_full_text": False, "add_special_tokens": False}
    try:
        pipeline = HuggingFacePipeline.from_model_id(
            model_id=name, task="text-generation", model_kwargs=model_settings, pipeline_kwargs=generation | settings
        )
        if adapter is not None:
            pipeline.pipeline.model = _adapted(pipeline.pipeline.model, adapter, merge=not load_in_8bit)
        return ChatHuggingFace(llm=pipeline)
    except ModelError:
        raise
    except Exception as error:
        where = "the folder" if Path(name).exists() else "the hub (is the name right, and the network there?)"
        raise ModelError(f"cannot load the local model {name!r} from {where}: {first_line(error)}") from error


def _adapted(model: Any, adapter: str | Path, *, merge: bool) -> Any:
    """A model with an adapter, merged into its weights unless these are 8-bit numbers."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ModelError('an adapter needs peft: pip install "langgraph-convcoa[grpo]"') from error
    if not (Path(adapter) / "adapter_config.json").is_file():
        raise ModelError(f"{adapter} holds no adapter: name a folder that convcoa train-planner made, without --full")
    adapted = PeftModel.from_pretrained(model, str(adapter))
    return adapted.merge_and_unload() if merge else adapted


def chat_models(model: object, config: RunnableConfig | None = None) -> list[BaseChatModel]:
    """The chat models inside the wrappers, in the order in which they are asked.

    If a run chooses a model's fields, `config` decides, or else the default. Without either, the model is left out. Raises
    ModelError if `model` is neither a chat model nor a wrapped one.
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
    kind = type(model).__name__
    if isinstance(model, Runnable) and kind == "_ConfigurableModel":
        # `init_chat_model` returns this object for configurable fields. Its class is not public.
        chosen: Any = model
        try:
            return chat_models(chosen._model(own_config(config)), config)  # there is no public method
        except Exception:  # noqa: BLE001 - no model is chosen, or it cannot be built: the call reports it
            return []
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


def layers(model: ChatModel) -> list[ChatModel]:
    """A model and what its bindings wrap, from the outside to the inside."""
    found = [model]
    while isinstance(found[-1], RunnableBindingBase):
        found.append(found[-1].bound)
    return found


def shown_url(url: str) -> str:
    """An address without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def described(model: BaseChatModel) -> str:
    """The name of a model, and its server if it has one, without anything secret."""
    names = (getattr(model, field, None) for field in ("model_name", "model", "model_id"))
    name = next(filter(None, names), type(model).__name__)
    base_url = getattr(model, "openai_api_base", None)
    return f"the model {name!r}" + (f" at {shown_url(str(base_url))}" if base_url else "")


def call_error(error: BaseException, model: ChatModel, config: RunnableConfig | None = None) -> ModelError:
    """The error that explains a failed model call in one redacted line. The `config` of the run may choose the model.

    If a model and its fallbacks fail, LangChain raises the error of the model.
    """
    if isinstance(error, ModelError):
        return error
    asked = chat_models(model, config)
    told = first_line(error, secrets_of(asked), named=True)
    if not asked:
        return ModelError(
            f"the configurable model cannot be built ({told}): name it in the run's config, such as "
            '{"configurable": {"model": "openai:gpt-4.1-mini"}}, or give it a default'
        )
    where = described(asked[0])
    inner = layers(model)[-1]
    fell_back = isinstance(inner, RunnableWithFallbacks) and isinstance(error, inner.exceptions_to_handle)
    others = "; its fallbacks failed too" if fell_back else ""
    status, kind = status_code(error), type(error).__name__.lower()
    if status in (401, 403):
        what = f"refused the key ({status}): check the provider's API key"
    elif status == 404:
        what = "does not exist there (404): check the name and the base URL"
    elif status == 429:
        what = "is over its rate limit or quota (429): wait a little, then ask again"
    elif status is not None and status >= 500:
        what = f"failed on the server's side ({status}): ask again later"
    elif status is not None and status < 400:
        what = "does not answer like an OpenAI-compatible API: is the base URL right (often .../v1)?"
    elif status is not None:
        what = f"rejected the request ({status}): it may be too long or use a setting it does not know; {told}"
    elif isinstance(error, TimeoutError) or "timeout" in kind:
        what = "did not answer in time: ask again, or raise the model's timeout"
    elif isinstance(error, ConnectionError) or "connect" in kind or "protocol" in kind:
        return ModelError(f"cannot reach {where}: is the server running and the base URL right?{others}")
    else:
        what = f"failed: {told}"
    return ModelError(f"{where} {what}{others}")


def status_code(error: BaseException) -> int | None:
    """The HTTP status of a provider's error; None if the error has none."""
    code = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None
