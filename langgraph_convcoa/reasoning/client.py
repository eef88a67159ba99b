"""A client of a chat model: asks for a reply in the form of a schema, and again without what the server rejects."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig, RunnableParallel, RunnableSequence
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.retry import RunnableRetry
from langgraph.constants import TAG_NOSTREAM

from langgraph_convcoa.errors import ConvCoAError
from langgraph_convcoa.reasoning.models import (
    ChatModel,
    call_error,
    described,
    layers,
    load_chat_model,
    own_config,
    status_code,
)
from langgraph_convcoa.reasoning.parsing import without_thought
from langgraph_convcoa.reasoning.streaming import AnswerStream

_log = logging.getLogger(__name__)
_Way = frozenset[str]
_REJECTED = {400: _Way({"schema", "usage"}), 404: _Way({"schema"}), 422: _Way({"schema", "usage"}), 501: _Way({"schema"})}
"""Status -> the parts of a request that a server may reject with it: the JSON schema, the request for usage figures."""


class ModelClient:
    """Asks a chat model for a reply.

    A bare chat model is asked for structured output if it takes a schema. If its server rejects the schema, or the flag for
    usage figures in a stream, later requests leave it out. A model in wrappers (fallbacks, retries, bound arguments,
    configurable fields) gets no schema: the prompt asks for JSON. Retries are the model's own (`max_retries`, `with_retry`).

    Args:
        model: A chat model, also in wrappers such as fallbacks, or a name for `load_chat_model`.
        base_url: An OpenAI-compatible server.
        load_in_8bit: Load a local transformers model in 8 bits.
        adapter: Folder of a LoRA adapter for a local transformers model, such as a trained planner.

    Raises:
        ModelError: The model cannot be built (here), or does not answer (from the methods).
    """

    def __init__(
        self,
        model: str | ChatModel,
        *,
        base_url: str | None = None,
        load_in_8bit: bool = False,
        adapter: str | Path | None = None,
    ) -> None:
        self.model: ChatModel = load_chat_model(model, base_url=base_url, load_in_8bit=load_in_8bit, adapter=adapter)
        self._bare = isinstance(self.model, BaseChatModel)
        self._whole: Any = self.model
        if isinstance(self.model, BaseChatModel):
            # Some servers send no usage figures with a stream.
            self._whole = self.model.model_copy(update={"disable_streaming": True})
        self._rejected = _Way()
        self._bound: dict[tuple[str, bool], Any] = {}

    def ask(
        self, messages: Any, schema: dict[str, Any] | None = None, config: RunnableConfig | None = None,
        stream: AnswerStream | None = None,
    ) -> str:  # fmt: skip
        """The reply to messages, in the form of a schema, without the leading thought.

        A `stream` reads the reply while the model writes it. Raises ModelError if the model does not answer.
        """
        attempt = self._first(schema, stream)
        config = _inner(config)
        while True:
            runnable, options = self._runnable(attempt, schema)
            try:
                if attempt.stream is None:
                    return self._done(attempt, _text(runnable.invoke(messages, config)))
                for piece in runnable.stream(messages, config, **options):
                    if not attempt.stream.feed(_text(piece)):
                        break
                return self._done(attempt, attempt.stream.close())
            except Exception as error:  # noqa: BLE001 - `_next` raises it again
                if (reply := _broken_off(error, attempt)) is not None:
                    return self._done(attempt, reply)
                attempt = self._next(attempt, error, config)

    async def aask(
        self, messages: Any, schema: dict[str, Any] | None = None, config: RunnableConfig | None = None,
        stream: AnswerStream | None = None,
    ) -> str:  # fmt: skip
        """As `ask`. A thread reads the pieces of a stream, because each complete sentence is verified."""
        attempt = self._first(schema, stream)
        config = _inner(config)
        while True:
            # A thread is used, since a schema is compiled, and a client reads certificates.
            runnable, options = await asyncio.to_thread(self._runnable, attempt, schema)
            try:
                if attempt.stream is None:
                    return self._done(attempt, _text(await runnable.ainvoke(messages, config)))
                async with aclosing(runnable.astream(messages, config, **options)) as pieces:
                    async for piece in pieces:
                        if not await asyncio.to_thread(attempt.stream.feed, _text(piece)):
                            break
                return self._done(attempt, await asyncio.to_thread(attempt.stream.close))
            except Exception as error:  # noqa: BLE001 - `_next` raises it again
                if (reply := _broken_off(error, attempt)) is not None:
                    return self._done(attempt, reply)
                attempt = self._next(attempt, error, config)

    def _first(self, schema: dict[str, Any] | None, stream: AnswerStream | None) -> _Attempt:
        """The first attempt: with a schema, and in a stream also with the flag for usage figures."""
        unset = self._bare and getattr(self.model, "stream_usage", True) is None
        usage = stream is not None and unset and getattr(self.model, "disable_streaming", False) is not True
        wanted = frozenset([*(["schema"] if self._bare and schema else []), *(["usage"] if usage else [])])
        best = wanted - self._rejected
        return _Attempt(best, best, stream)

    def _next(self, attempt: _Attempt, error: Exception, config: RunnableConfig) -> _Attempt:
        """The next attempt after a failure; raises the failure if there is none.

        A prompt that is too long is rejected with and without a schema. So `_done` gives up a schema for good only after
        the same request succeeded without it. A stream that has begun is not repeated: a reader may have seen a part of it.
        """
        if isinstance(error, ConvCoAError):
            # The error is explained already, or comes from the verifier, which reads the stream.
            raise error
        stream = attempt.stream
        if stream is None or not stream.begun:
            best, rejected = attempt.best, _REJECTED.get(status_code(error) or 0, _Way())
            ways = list(dict.fromkeys([best, best - {"schema"}, best - {"usage"}, _Way()]))
            if usable := [way for way in ways[ways.index(attempt.way) + 1 :] if best - way <= rejected]:
                return attempt._replace(way=usable[0])
            if stream is not None and any(isinstance(layer, RunnableRetry) for layer in layers(self.model)):
                # `with_retry` retries whole replies only.
                return attempt._replace(stream=None)
        raise call_error(error, self.model, config) from error

    def _runnable(self, attempt: _Attempt, schema: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        streams = attempt.stream is not None
        model: Any = self.model if streams else self._whole
        if "schema" in attempt.way and schema is not None:
            key = (schema["title"], streams)
            if key not in self._bound:
                self._bound[key] = _structured(model, schema)
            model = self._bound[key]
        return model, {"stream_usage": True} if "usage" in attempt.way else {}

    def _done(self, attempt: _Attempt, reply: str) -> str:
        if dropped := attempt.best - attempt.way:
            self._rejected |= dropped
            _log.info("%s is asked without %s from now on", described(self._whole), " and ".join(sorted(dropped)))
        return without_thought(reply)


class _Attempt(NamedTuple):
    """A request. `best` names all that it may ask for; `way` names what this attempt asks for, after rejections."""

    best: _Way
    way: _Way
    stream: AnswerStream | None


def _inner(config: RunnableConfig | None) -> RunnableConfig:
    """The configuration of a model's own run: it is kept out of the stream of messages."""
    return own_config(merge_configs(config, {"tags": [TAG_NOSTREAM]}))


def _structured(model: BaseChatModel, schema: dict[str, Any]) -> Any:
    """The model bound to a schema, without LangChain's parser; the bare model if it takes no schema."""
    try:
        structured: Any = model.with_structured_output(schema, method="json_schema", include_raw=True)
    except (NotImplementedError, ValueError, TypeError):
        return model
    first = structured.first if isinstance(structured, RunnableSequence) else None
    raw = first.steps__.get("raw") if isinstance(first, RunnableParallel) else None
    if raw is None:
        _log.info("%s gives structured output in an unknown form; it is asked for JSON in the prompt only", described(model))
    return raw or model


def _text(reply: BaseMessage) -> str:
    """The text of a reply or of a piece of it; if a provider sends the JSON as a tool call, the call's arguments."""
    if reply.text or not isinstance(reply, AIMessage):
        return reply.text
    if chunks := getattr(reply, "tool_call_chunks", None):
        return "".join(chunk["args"] or "" for chunk in chunks)
    return json.dumps(reply.tool_calls[0]["args"], ensure_ascii=False) if reply.tool_calls else ""


def _broken_off(error: Exception, attempt: _Attempt) -> str | None:
    """The text of a reply that was cut off at its length limit. The client of openai reports that as an error."""
    choices = getattr(getattr(error, "completion", None), "choices", None)
    if not choices:
        return None
    return attempt.stream.close() if attempt.stream is not None else choices[0].message.content or ""
