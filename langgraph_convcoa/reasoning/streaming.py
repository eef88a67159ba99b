"""A chat model that streams, of another one's JSON reply, the answer, each sentence only when it has been verified."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, PrivateAttr

from langgraph_convcoa.reasoning.base import Gate
from langgraph_convcoa.reasoning.parsing import ThoughtFilter
from langgraph_convcoa.usage import ANSWER_STREAM_TAG

_EMPTY_CHAIN = re.compile(r'"chain"\s*:\s*\[\s*\]')
_FINAL = re.compile(r'"final_answer"\s*:\s*"')
_UNFINISHED = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
_END = re.compile(r'(?<!\\)(?:\\\\)*"')


class FinalAnswerReader:
    r"""Reads the value of "final_answer" out of a JSON object that is still being written.

    Nothing is read while `after` has not been found before it: an answer beside a chain is a draft.

    Example:
        >>> reader = FinalAnswerReader()
        >>> [reader.feed(text) for text in ('{"final_', 'answer": "It was \\', '"big\\".", ')]
        [('', False), ('It was ', False), ('It was "big".', True)]
    """

    def __init__(self, after: re.Pattern[str] | None = None) -> None:
        self._after = after
        self._text = ""
        self._start = -1

    def feed(self, text: str) -> tuple[str, bool]:
        """Take the next piece of the reply; returns the answer so far, and whether that is all of it."""
        self._text += text
        if self._start < 0:
            found = _FINAL.search(self._text)
            if found is None or (self._after is not None and not self._after.search(self._text, 0, found.start())):
                return "", False
            self._start = found.end()
        value = self._text[self._start :]
        end = _END.search(value)
        if end is not None:
            value = value[: end.end() - 1]
        elif unfinished := _UNFINISHED.search(value):
            value = value[: unfinished.start()]
        try:
            return str(json.loads(f'"{value}"', strict=False)), end is not None
        except ValueError:
            # An escape that JSON does not have: the reply is mended when it is read whole.
            return "", False


class ReplyStream(BaseChatModel):
    """One reply of a chat model, asked as a `whole` or `streamed`.

    Whoever streams the graph's messages sees the sentences of its answer that `gate` lets through.

    The model's own run goes on under `inner_config`, which keeps it out of the stream. Made for one call: `reply` is the
    model's message afterwards.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    whole: Any
    streamed: Any
    inner_config: RunnableConfig
    gate: Any
    whole_answer: bool = False
    """Whether "final_answer" is the answer whatever the reply says before it."""
    tags: list[str] | None = Field(default_factory=lambda: [ANSWER_STREAM_TAG])
    # A cached reply would skip the gate, and the cache cannot tell one inner model from another; that one may be cached.
    cache: Any = False
    _reply: BaseMessage | None = PrivateAttr(default=None)

    @property
    def _llm_type(self) -> str:
        return "convcoa-reply"

    @property
    def reply(self) -> BaseMessage:
        """The inner model's whole reply."""
        assert self._reply is not None
        return self._reply

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self._reply = self.whole.invoke(messages, self.inner_config)
        return _result(self.gate)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self._reply = await self.whole.ainvoke(messages, self.inner_config)
        return _result(self.gate)

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        collected = _Collected(self._reader(), self.gate)
        for chunk in self.streamed.stream(messages, self.inner_config):
            if text := collected.feed(chunk):
                yield collected.piece(text)
        yield collected.last()
        self._reply = collected.reply

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        collected = _Collected(self._reader(), self.gate)
        async for chunk in self.streamed.astream(messages, self.inner_config):
            # In a thread: a sentence that has ended is verified, which may ask an encoder.
            if text := await asyncio.to_thread(collected.feed, chunk):
                yield collected.piece(text)
        yield await asyncio.to_thread(collected.last)
        self._reply = collected.reply

    def _reader(self) -> FinalAnswerReader:
        return FinalAnswerReader(None if self.whole_answer else _EMPTY_CHAIN)


class Shown(BaseChatModel):
    """Puts text that is already known into the message stream, as a part of the message `message_id`."""

    text: str
    message_id: str
    tags: list[str] | None = Field(default_factory=lambda: [ANSWER_STREAM_TAG])
    cache: Any = False

    @property
    def _llm_type(self) -> str:
        return "convcoa-shown"

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.text, id=self.message_id))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(content=self.text, id=self.message_id, chunk_position="last"))


class _Collected:
    """The chunks of a reply: what of them can be shown, and the whole."""

    def __init__(self, reader: FinalAnswerReader, gate: Gate) -> None:
        self._reader, self._gate = reader, gate
        self._thoughts = ThoughtFilter()
        self._message: AIMessageChunk | None = None
        self._answer = ""
        _name(gate)

    def feed(self, chunk: AIMessageChunk) -> str:
        self._message = chunk if self._message is None else self._message + chunk
        return self._read(self._thoughts.feed(chunk.text)) if chunk.text else ""

    def close(self) -> str:
        return self._read(self._thoughts.close())

    def _read(self, text: str) -> str:
        answer, done = self._reader.feed(text)
        if not answer or (answer == self._answer and not done):
            return ""
        self._answer = answer
        return self._gate.feed(answer, done=done)

    def piece(self, text: str) -> ChatGenerationChunk:
        return ChatGenerationChunk(message=AIMessageChunk(content=text, id=self._gate.message_id))

    def last(self) -> ChatGenerationChunk:
        """The rest; marked as the last chunk, or LangChain would add one of another message."""
        message = AIMessageChunk(content=self.close(), id=self._gate.message_id, chunk_position="last")
        return ChatGenerationChunk(message=message)

    @property
    def reply(self) -> BaseMessage:
        return self._message if self._message is not None else AIMessage("")


def _name(gate: Gate) -> None:
    gate.message_id = gate.message_id or f"run-{uuid.uuid4()}"


def _result(gate: Gate) -> ChatResult:
    _name(gate)
    return ChatResult(generations=[ChatGeneration(message=AIMessage("", id=gate.message_id))])
