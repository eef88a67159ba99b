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
from langgraph_convcoa.reasoning.parsing import LONGEST_REPLY, ThoughtFilter
from langgraph_convcoa.text.clean import LONGEST_ANSWER, clean, cut_answer
from langgraph_convcoa.usage import ANSWER_STREAM_TAG

_EMPTY_CHAIN = re.compile(r'"chain"\s*:\s*\[\s*\]')
_FINAL = re.compile(r'"final_answer"\s*:\s*"')
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_VALUE = re.compile(r'(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*+', re.DOTALL)
_LONGEST_ESCAPE = 6
_LONGEST_KEY = 1_000
"""Characters in which "chain" or "final_answer" stands with the white space around it."""


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
        self._held = ""
        self._started = self._ended = False
        self._answer = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Take the next piece of the reply; returns the answer so far, and whether that is all of it.

        No piece is read twice, but for a key or an escape that may be cut between two.
        """
        if self._ended:
            return self._answer, True
        self._held += text
        if not self._started:
            found = _FINAL.search(self._held)
            before = self._held[: found.start()] if found else self._held
            if self._after is not None and self._after.search(before):
                self._after = None
            if found is None or self._after is not None:
                self._held = self._held[-_LONGEST_KEY:]
                return "", False
            self._started, self._held = True, self._held[found.end() :]
        return self._read()

    def _read(self) -> tuple[str, bool]:
        found = _VALUE.match(self._held)
        end = found.end() if found else 0
        self._ended = self._held[end : end + 1] == '"'
        value = self._held[:end]
        if (
            not self._ended
            and (half := _HALF.search(value, max(0, end - _LONGEST_ESCAPE)))
            and _is_escape(value, half.start())
        ):
            value = value[: half.start()]
        self._held = self._held[len(value) :]
        broken = not value and not self._ended and len(self._held) > 2 * _LONGEST_ESCAPE
        try:
            self._answer += clean(json.loads(f'"{value}"', strict=False))
        except ValueError:
            broken = True
        if broken:
            # An escape that JSON does not have: the reply is mended when it is read whole.
            self._answer, self._ended = "", True
        if len(self._answer) > LONGEST_ANSWER:
            self._answer, self._ended = cut_answer(self._answer), True
        return self._answer, self._ended


def _is_escape(value: str, place: int) -> bool:
    """Whether the backslash at a place is not itself escaped."""
    before = value[:place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0


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
            if collected.full:
                break
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
            if collected.full:
                break
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
        self._chunks: list[AIMessageChunk] = []
        self._answer = self._length = 0
        _name(gate)

    def feed(self, chunk: AIMessageChunk) -> str:
        self._chunks.append(chunk)
        self._length += len(chunk.text)
        return self._read(self._thoughts.feed(chunk.text)) if chunk.text else ""

    @property
    def full(self) -> bool:
        """Whether the reply is longer than any that is read."""
        return self._length > LONGEST_REPLY

    def close(self) -> str:
        return self._read(self._thoughts.close())

    def _read(self, text: str) -> str:
        answer, done = self._reader.feed(text)
        if not answer or (len(answer) == self._answer and not done):
            return ""
        self._answer = len(answer)
        return self._gate.feed(answer, done=done)

    def piece(self, text: str) -> ChatGenerationChunk:
        return ChatGenerationChunk(message=AIMessageChunk(content=text, id=self._gate.message_id))

    def last(self) -> ChatGenerationChunk:
        """The rest; marked as the last chunk, or LangChain would add one of another message."""
        message = AIMessageChunk(content=self.close(), id=self._gate.message_id, chunk_position="last")
        return ChatGenerationChunk(message=message)

    @property
    def reply(self) -> BaseMessage:
        return self._chunks[0] + self._chunks[1:] if self._chunks else AIMessage("")


def _name(gate: Gate) -> None:
    gate.message_id = gate.message_id or f"run-{uuid.uuid4()}"


def _result(gate: Gate) -> ChatResult:
    _name(gate)
    return ChatResult(generations=[ChatGeneration(message=AIMessage("", id=gate.message_id))])
