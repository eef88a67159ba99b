"""A reasoner around any LangChain chat model: one call plans or answers at once, one more corrects what is left open.

`messages.py` makes the messages of a call and reads its reply.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig, RunnableParallel, RunnableSequence
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.retry import RunnableRetry
from langgraph.constants import TAG_NOSTREAM

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.errors import ConvCoAError
from langgraph_convcoa.reasoning.base import Corrected, CorrectRequest, PlanRequest, Reasoner, RepairRequest
from langgraph_convcoa.reasoning.messages import (
    correct_messages,
    plan_again_messages,
    plan_messages,
    read_corrections,
    read_inputs,
    read_plan,
    repair_messages,
    shown_numbers,
)
from langgraph_convcoa.reasoning.models import (
    ChatModel,
    call_error,
    described,
    layers,
    load_chat_model,
    own_config,
    status_code,
)
from langgraph_convcoa.reasoning.parsing import (
    ANSWER_SCHEMA,
    ASKING_SCHEMA,
    CHAIN_SCHEMA,
    CONFIRMATIONS_SCHEMA,
    CORRECTIONS_SCHEMA,
    INPUTS_SCHEMA,
    without_thought,
)
from langgraph_convcoa.reasoning.streaming import AnswerStream, SentenceGate

_log = logging.getLogger(__name__)
_Way = frozenset[str]
_REJECTED = {400: _Way({"schema", "usage"}), 404: _Way({"schema"}), 422: _Way({"schema", "usage"}), 501: _Way({"schema"})}
"""Status -> the parts of a request that a server may reject with it: the JSON schema, the request for usage figures."""


class ChatModelReasoner(Reasoner):
    """Plans and corrects with a chat model.

    Malformed output never stops a turn: a reply is searched for JSON. A plan without JSON is asked for once more. If the
    second reply has none either, the question becomes a chain of one node.

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

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> plan = '{"optimized_question": "Who?", "chain": [{"action": "docs", "sub": "Who wrote it?"}]}'
        >>> reasoner = ChatModelReasoner(FakeListChatModel(responses=[plan]))
        >>> reasoner.plan(PlanRequest("Who?", {"docs": "local documents"})).nodes[0].sub_question
        'Who wrote it?'
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

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        """The chain, or the answer, in the JSON reply to a prompt `prompts/plan_*.md`."""
        messages, schema = plan_messages(request), _plan_schema(request)
        reply = self.ask(messages, schema, config, _stream(request.gate, whole_answer=False))
        chain = read_plan(reply, request)
        if chain is None:
            chain = read_plan(self.ask(plan_again_messages(messages, reply), schema, config), request)
        return chain or _single(request)

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        # Prompts and replies may be long, so threads make and read them.
        messages, schema = await asyncio.to_thread(plan_messages, request), _plan_schema(request)
        reply = await self.aask(messages, schema, config, _stream(request.gate, whole_answer=False))
        chain = await asyncio.to_thread(read_plan, reply, request)
        if chain is None:
            reply = await self.aask(plan_again_messages(messages, reply), schema, config)
            chain = await asyncio.to_thread(read_plan, reply, request)
        return chain or _single(request)

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        """The corrections in the reply to `correct.md`, or to `confirm.md` for failed sentences of the planner's answer."""
        numbers = shown_numbers(request)
        messages, stream = correct_messages(request, numbers), _stream(request.gate, whole_answer=True, numbers=numbers)
        return read_corrections(self.ask(messages, _schema(request), config, stream), request, numbers)

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        numbers = await asyncio.to_thread(shown_numbers, request)
        messages = await asyncio.to_thread(correct_messages, request, numbers)
        stream = _stream(request.gate, whole_answer=True, numbers=numbers)
        reply = await self.aask(messages, _schema(request), config, stream)
        return await asyncio.to_thread(read_corrections, reply, request, numbers)

    def repair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        """New action inputs from one call, without those that the reply leaves out."""
        return read_inputs(self.ask(repair_messages(request), INPUTS_SCHEMA, config), request)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return read_inputs(await self.aask(repair_messages(request), INPUTS_SCHEMA, config), request)

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
            # In a thread: a schema is compiled, and a client reads certificates.
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
            # It is explained already, or comes from the verifier, which reads the stream.
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


def _single(request: PlanRequest) -> ActionChain:
    _log.warning("the plan could not be read twice; looking the question up as it is")
    return ActionChain.single(request.question, next(iter(request.actions)))


def _plan_schema(request: PlanRequest) -> dict[str, Any]:
    over_evidence = ASKING_SCHEMA if request.may_ask else ANSWER_SCHEMA
    return over_evidence if request.evidence else CHAIN_SCHEMA


def _schema(request: CorrectRequest) -> dict[str, Any]:
    return CONFIRMATIONS_SCHEMA if request.draft else CORRECTIONS_SCHEMA


def _stream(gate: SentenceGate | None, *, whole_answer: bool, numbers: Sequence[int] | None = None) -> AnswerStream | None:
    """The stream of a reply, if a gate shows its answer; otherwise the reply is asked for as a whole."""
    return AnswerStream(gate, whole_answer=whole_answer, numbers=numbers) if gate is not None else None


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
