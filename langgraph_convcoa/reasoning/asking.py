"""Requests to a chat model in its wrappers, whole or streamed, with a JSON schema where the model takes one."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

from cachetools import LRUCache
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig, RunnableParallel, RunnableSequence
from langchain_core.runnables.config import ensure_config

from langgraph_convcoa.reasoning.models import described, status_code
from langgraph_convcoa.reasoning.wrapped import ChatModel, changed

_log = logging.getLogger(__name__)
_Way = frozenset[str]
_KEPT = 16
# What a server may reject a request for, by its status.
_REJECTED: dict[int | None, _Way] = {
    400: frozenset({"schema", "usage"}),
    422: frozenset({"schema", "usage"}),
    404: frozenset({"schema"}),
    501: frozenset({"schema"}),
}


class Asking:
    """Asks a chat model, whatever wrappers are around it: fallbacks and retries act on the request as it is made here.

    A request may carry a JSON schema; the reply's text is then the JSON, also where the provider sends it as a tool call. A
    server that rejects the schema, or the wish for usage figures in a stream, is asked without, and no more with it once that
    went through. Every request that is made is a run of the chat model, so that a usage counter counts it.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> model = FakeListChatModel(responses=["{}"]).with_retry()
        >>> Asking(model).whole({"title": "plan", "type": "object"}).invoke("?").text
        '{}'
    """

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self._rejected: dict[str, _Way] = {}
        # By the identity of the chat model, of which a run may choose new ones without end.
        self._prepared: LRUCache[int, _Prepared] = LRUCache(_KEPT)
        self._lock = threading.Lock()

    def whole(self, schema: dict[str, Any] | None = None) -> ChatModel:
        """The model, never streamed: a stream lacks the usage figures of some servers."""
        return changed(self.model, partial(self._request, schema, whole=True))

    def streamed(self, schema: dict[str, Any] | None = None) -> ChatModel:
        """The model, for `stream` and `astream`, with usage figures where the server gives them."""
        return changed(self.model, partial(self._request, schema, whole=False))

    def _request(self, schema: dict[str, Any] | None, model: BaseChatModel, *, whole: bool) -> ChatModel:
        with self._lock:
            prepared = self._prepared.get(id(model))
            if prepared is None or prepared.model is not model:
                prepared = self._prepared[id(model)] = _Prepared(model)
            asked = prepared.whole if whole else model
            return _Request(asked, prepared.with_schema(asked, schema) if schema else None, self._rejected)


class _Prepared:
    """A chat model, its copy that never streams, and either of them bound to the schemas that they were asked with."""

    def __init__(self, model: BaseChatModel) -> None:
        self.model, self.whole = model, model.model_copy(update={"disable_streaming": True})
        self._bound: LRUCache[tuple[int, int], tuple[dict[str, Any], ChatModel | None]] = LRUCache(_KEPT)

    def with_schema(self, model: BaseChatModel, schema: dict[str, Any]) -> ChatModel | None:
        key = (id(model), id(schema))
        known = self._bound.get(key)
        if known is None or known[0] is not schema:
            known = self._bound[key] = (schema, _with_schema(model, schema))
        return known[1]


class _Request(Runnable[LanguageModelInput, AIMessage]):
    """One chat model, asked in the best way that it takes."""

    def __init__(self, model: BaseChatModel, structured: ChatModel | None, rejected: dict[str, _Way]) -> None:
        self._model, self._structured, self._rejected = model, structured, rejected
        self._key = described(model)

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        config, tried = ensure_config(config), _Tried(self._ways(streamed=False))
        while True:
            try:
                runnable, options = self._asked(tried.way, kwargs)
                return self._done(tried, runnable.invoke(input, config, **options))
            except Exception as error:
                if (partial_reply := _broken_off(error)) is not None:
                    return AIMessage(partial_reply)
                if not tried.again(error):
                    raise

    async def ainvoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        config, tried = ensure_config(config), _Tried(self._ways(streamed=False))
        while True:
            try:
                runnable, options = self._asked(tried.way, kwargs)
                return self._done(tried, await runnable.ainvoke(input, config, **options))
            except Exception as error:
                if (partial_reply := _broken_off(error)) is not None:
                    return AIMessage(partial_reply)
                if not tried.again(error):
                    raise

    def stream(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[AIMessage]:
        config, tried = ensure_config(config), _Tried(self._ways(streamed=True))
        while True:
            try:
                runnable, options = self._asked(tried.way, kwargs)
                for piece in runnable.stream(input, config, **options):
                    tried.shown = True
                    yield self._done(tried, piece)
                return
            except Exception as error:
                if tried.shown and _broken_off(error) is not None:
                    return
                if not tried.again(error):
                    raise

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessage]:
        config, tried = ensure_config(config), _Tried(self._ways(streamed=True))
        while True:
            try:
                runnable, options = self._asked(tried.way, kwargs)
                async with aclosing(runnable.astream(input, config, **options)) as pieces:  # type: ignore[type-var]
                    async for piece in pieces:
                        tried.shown = True
                        yield self._done(tried, piece)
                return
            except Exception as error:
                if tried.shown and _broken_off(error) is not None:
                    return
                if not tried.again(error):
                    raise

    def _ways(self, *, streamed: bool) -> list[_Way]:
        """The ways to ask, the best first: with a schema, and in a stream with the wish for usage figures."""
        # A model that does not stream is asked for its reply as a whole, where the option is unknown.
        unset = getattr(self._model, "stream_usage", True) is None
        usage = streamed and unset and self._model.disable_streaming is not True
        can = frozenset([*(["schema"] if self._structured else []), *(["usage"] if usage else [])])
        best = can - self._rejected.get(self._key, frozenset())
        return list(dict.fromkeys([best, best - {"schema"}, best - {"usage"}, frozenset[str]()]))

    def _asked(self, way: _Way, given: dict[str, Any]) -> tuple[ChatModel, dict[str, Any]]:
        options = dict(given)
        if "usage" in way:
            options["stream_usage"] = True
        if "schema" not in way or self._structured is None:
            return self._model, options
        # What asks for the schema goes before what is bound to the model, such as tools of its own.
        fixed = self._structured.kwargs if isinstance(self._structured, RunnableBinding) else {}
        return self._structured, {name: value for name, value in options.items() if name not in fixed}

    def _done(self, tried: _Tried, reply: AIMessage) -> AIMessage:
        if dropped := tried.ways[0] - tried.way:
            self._rejected[self._key] = self._rejected.get(self._key, frozenset()) | dropped
            _log.info("%s is asked without %s from now on", self._key, " and ".join(sorted(dropped)))
        return _as_text(reply) if "schema" in tried.way else reply


class _Tried:
    """Which way to ask is tried, and whether there is another after a failure."""

    def __init__(self, ways: list[_Way]) -> None:
        self.ways, self.way, self.shown = ways, ways[0], False

    def again(self, error: Exception) -> bool:
        """Take the next way where the server may have rejected what that one leaves out.

        A way is given up for good only when the same request then goes through: a prompt that is too long is rejected either
        way.
        """
        rejected = _REJECTED.get(status_code(error), frozenset())
        later = self.ways[self.ways.index(self.way) + 1 :]
        usable = [way for way in later if self.ways[0] - way <= rejected]
        if self.shown or not usable:
            return False
        self.way = usable[0]
        return True


def _with_schema(model: BaseChatModel, schema: dict[str, Any]) -> ChatModel | None:
    """The model bound to a schema, its replies as they come: what LangChain's parsers make of them is not needed here."""
    try:
        structured: Any = model.with_structured_output(schema, method="json_schema", include_raw=True)
    except (NotImplementedError, ValueError, TypeError):
        return None
    first = structured.first if isinstance(structured, RunnableSequence) else None
    raw = first.steps__.get("raw") if isinstance(first, RunnableParallel) else None
    if raw is None:
        _log.info("%s gives structured output in an unknown form; it is asked for JSON in the prompt only", described(model))
    return raw


def _as_text(reply: AIMessage) -> AIMessage:
    """The reply with its JSON as text, also where the provider sends it as the arguments of a tool call."""
    if reply.text:
        return reply
    if isinstance(reply, AIMessageChunk) and reply.tool_call_chunks:
        return reply.model_copy(update={"content": "".join(chunk["args"] or "" for chunk in reply.tool_call_chunks)})
    if isinstance(reply, AIMessage) and not isinstance(reply, AIMessageChunk) and reply.tool_calls:
        return reply.model_copy(update={"content": json.dumps(reply.tool_calls[0]["args"], ensure_ascii=False)})
    return reply


def _broken_off(error: Exception) -> str | None:
    """The text of a reply that its length limit broke off, which openai's client reports as an error."""
    choices = getattr(getattr(error, "completion", None), "choices", None)
    return (choices[0].message.content or "") if choices else None
