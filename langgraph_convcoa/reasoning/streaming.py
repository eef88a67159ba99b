"""A chat model that streams the answer of another one, its citations checked before a reader sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from pydantic import Field, PrivateAttr

from langgraph_convcoa.reasoning.models import ModelCallError, call_error, status_code
from langgraph_convcoa.reasoning.parsing import ThoughtFilter
from langgraph_convcoa.text.citations import CitationFilter
from langgraph_convcoa.usage import ANSWER_STREAM_TAG


class AnswerStream(BaseChatModel):
    """One answer of `inner`, streamed through a `CitationFilter`.

    Whoever streams the graph's messages sees this model's tokens, which add up to the answer; the inner model's own run under
    `inner_config`, which keeps them out of the stream. Made for one call: the filter remembers what was cited.
    """

    inner: BaseChatModel
    inner_config: RunnableConfig
    available: frozenset[int]
    tags: list[str] | None = Field(default_factory=lambda: [ANSWER_STREAM_TAG])
    # A cached answer would skip the filter, and the cache cannot tell one inner model from another; that one may be cached.
    cache: Any = False
    _marks: CitationFilter = PrivateAttr()
    _thoughts: ThoughtFilter = PrivateAttr(default_factory=ThoughtFilter)
    _shown: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._marks = CitationFilter(self.available)

    @property
    def _llm_type(self) -> str:
        return "convcoa-answer"

    @property
    def marks(self) -> CitationFilter:
        """What the answer cites."""
        return self._marks

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        try:
            reply = self.inner.invoke(messages, self.inner_config, stop=stop)
        except Exception as error:
            raise call_error(error, self.inner) from error
        return self._result(reply)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        try:
            reply = await self.inner.ainvoke(messages, self.inner_config, stop=stop)
        except Exception as error:
            raise call_error(error, self.inner) from error
        return self._result(reply)

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for options in self._stream_options():
            try:
                for chunk in self.inner.stream(messages, self.inner_config, stop=stop, **options):
                    if text := self._marks.feed(self._thoughts.feed(chunk.text)):
                        yield self._piece(text)
                break
            except Exception as error:
                if failure := self._failure(error, options):
                    raise failure from error
        yield self._piece(self._rest())

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for options in self._stream_options():
            try:
                async for chunk in self.inner.astream(messages, self.inner_config, stop=stop, **options):
                    if text := self._marks.feed(self._thoughts.feed(chunk.text)):
                        yield self._piece(text)
                break
            except Exception as error:
                if failure := self._failure(error, options):
                    raise failure from error
        yield self._piece(self._rest())

    def _rest(self) -> str:
        return self._marks.feed(self._thoughts.close()) + self._marks.close()

    def _stream_options(self) -> list[dict[str, Any]]:
        """OpenAI's wire format reports usage in a stream only when asked; a server that rejects this is asked without."""
        # A model that does not stream is asked for its reply as a whole, where the option is unknown.
        asked = getattr(self.inner, "stream_usage", True) is None and self.inner.disable_streaming is not True
        return [{"stream_usage": True}, {}] if asked else [{}]

    def _failure(self, error: Exception, options: dict[str, Any]) -> ModelCallError | None:
        """None where the server rejected only the options."""
        if options and not self._shown and status_code(error) in (400, 422):
            return None
        failure = call_error(error, self.inner)
        # What a reader has seen cannot be taken back, so a broken-off answer is not restarted on its own.
        return ModelCallError(str(failure)) if self._shown else failure

    def _piece(self, text: str) -> ChatGenerationChunk:
        self._shown = True
        return ChatGenerationChunk(message=AIMessageChunk(content=text))

    def _result(self, reply: AIMessage) -> ChatResult:
        text = self._marks.feed(self._thoughts.feed(reply.text)) + self._rest()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])
