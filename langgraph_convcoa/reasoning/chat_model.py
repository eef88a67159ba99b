"""A reasoner around any LangChain chat model: one call to plan or answer at once, one more for all that is left open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.constants import TAG_NOSTREAM

from langgraph_convcoa.chain import SOLVED, ActionChain, ChainItem
from langgraph_convcoa.reasoning.asking import Asking
from langgraph_convcoa.reasoning.base import (
    Corrected,
    Correction,
    CorrectRequest,
    Gate,
    PlanRequest,
    Reasoner,
    RepairRequest,
)
from langgraph_convcoa.reasoning.excerpts import Excerpt, excerpts
from langgraph_convcoa.reasoning.models import ModelCallError, call_error, load_chat_model
from langgraph_convcoa.reasoning.parsing import (
    CHAIN_SCHEMA,
    CONFIRMATIONS_SCHEMA,
    CORRECTIONS_SCHEMA,
    INPUTS_SCHEMA,
    parse_chain,
    parse_corrections,
    parse_inputs,
    without_thought,
)
from langgraph_convcoa.reasoning.prompts import PARTS, fence, render, unfenced
from langgraph_convcoa.reasoning.streaming import ReplyStream
from langgraph_convcoa.reasoning.wrapped import ChatModel
from langgraph_convcoa.text.clean import cut_field, flat
from langgraph_convcoa.text.words import content_words

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_CONFIRMED_FROM, _CONFIRMED_WORDS = 2, 70
"""Pieces of evidence that are shown for each sentence of a draft that is to be confirmed, and their words on average."""
_MOST_PIECES, _PIECE_WORDS = 7, 90
"""Pieces of evidence in the prompt for corrections, the best of each look-up first, and their words on average."""

# An exchange with the model: yields (messages, JSON schema), is sent the reply's text, returns its result. The plain and the
# async methods share it.
_Asked = tuple[Runnable[Any, Any], list[BaseMessage], RunnableConfig | None]
_Exchange = Generator[tuple[list[BaseMessage], dict[str, Any]], str, _T]


class ChatModelReasoner(Reasoner):
    """Plans and corrects with a chat model.

    Over evidence the plan's reply is the answer, with a chain of what is still open where the evidence does not suffice; each
    sentence of the answer is streamed as soon as the request's gate lets it through.

    Structured output is asked for by JSON schema where the model can; a reply that is not JSON is searched for some, then
    asked for once more, and a plan that still cannot be read becomes a one-node chain: malformed output never stops a turn.

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
        self._asking = Asking(self.model)

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        return self._run(_plan(request), config, request.gate)

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        if request.draft:
            return self._run(_confirm(request), config)
        return self._run(_correct(request), config, request.gate, whole_answer=True)

    def repair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        """Other action inputs in one call; none for what the reply leaves out."""
        return self._run(_repair(request), config)

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        return await self._arun(_plan(request), config, request.gate)

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        if request.draft:
            return await self._arun(_confirm(request), config)
        return await self._arun(_correct(request), config, request.gate, whole_answer=True)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return await self._arun(_repair(request), config)

    def _run(
        self, exchange: _Exchange[_T], config: RunnableConfig | None, gate: Gate | None = None, *, whole_answer: bool = False
    ) -> _T:
        calls = self._calls(exchange, config, gate, whole_answer)
        step = partial(next, calls)
        try:
            while True:
                runnable, messages, of_call = step()
                try:
                    step = partial(calls.send, runnable.invoke(messages, of_call))
                except Exception as error:  # noqa: BLE001 - `_calls` raises it again as a ModelError unless it can be mended
                    step = partial(calls.throw, error)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def _arun(
        self, exchange: _Exchange[_T], config: RunnableConfig | None, gate: Gate | None = None, *, whole_answer: bool = False
    ) -> _T:
        calls = self._calls(exchange, config, gate, whole_answer)
        step = partial(next, calls)
        while True:
            # In a thread: a prompt is made of all the evidence, and a reply may take a while to read.
            made = await asyncio.to_thread(_stepped, step)
            if isinstance(made, _Done):
                return made.value  # type: ignore[no-any-return]
            runnable, messages, of_call = made
            try:
                step = partial(calls.send, await runnable.ainvoke(messages, of_call))
            except Exception as error:  # noqa: BLE001 - as above
                step = partial(calls.throw, error)

    def _calls(
        self, exchange: _Exchange[_T], config: RunnableConfig | None, gate: Gate | None, whole_answer: bool
    ) -> Generator[_Asked, Any, _T]:
        """The calls of an exchange, each with a schema where the model takes one; the first one may be streamed.

        Streaming a reply because somebody streams the graph would only lose the usage figures that some servers leave out of
        streams: what no reader is shown is asked for as a whole.
        """
        internal = merge_configs(config, {"tags": [TAG_NOSTREAM]})
        messages, schema = next(exchange)
        while True:
            try:
                if gate is None:
                    reply = yield self._asking.whole(schema), messages, internal
                else:
                    stream = ReplyStream(
                        whole=self._asking.whole(schema),
                        streamed=self._asking.streamed(schema),
                        inner_config=internal,
                        gate=gate,
                        whole_answer=whole_answer,
                    )
                    yield stream, messages, config
                    reply = stream.reply
            except Exception as error:
                failure = call_error(error, self.model, config)
                # What a reader has seen cannot be taken back, so a broken-off answer is not restarted on its own.
                raise (ModelCallError(str(failure)) if gate is not None and gate.shown else failure) from error
            # What could not be read is asked for again as a whole.
            gate = None
            try:
                messages, schema = exchange.send(without_thought(reply.text))
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]


class _Done(NamedTuple):
    """What an exchange returned."""

    value: Any


def _stepped(step: Callable[[], _Asked]) -> _Asked | _Done:
    """The next call of an exchange, or its result: a StopIteration cannot leave a thread."""
    try:
        return step()
    except StopIteration as done:
        return _Done(done.value)


def _message(name: str, evidence: Sequence[Excerpt] | None = None, **values: str) -> HumanMessage:
    """A prompt as a message that says how many of its characters are conversation and evidence: the usage counts by that.

    What others wrote stands in the fence of the evidence, or in lines of its own that cannot look like one.
    """
    values = {part: unfenced(text) for part, text in values.items()}
    if evidence is not None:
        values["evidence"] = fence(evidence, values.values())
    text = render(name, **values)
    parts = {part: len(values[part]) for part in PARTS if part in values}
    return HumanMessage(text, response_metadata={"parts": parts})


def plan_messages(request: PlanRequest) -> list[BaseMessage]:
    """The first messages that a plan is asked for with, which is what a planner is trained on.

    Example:
        >>> message = plan_messages(PlanRequest("Who wrote it?", {"docs": "local documents"}))[0]
        >>> message.text.splitlines()[-1]
        '[Question]: Who wrote it?'
    """
    actions = list(request.actions)
    values = {
        "question": request.question,
        "actions": _listed(request.actions),
        "limit": str(request.max_sub_questions),
        "language": _in_language(request.language),
    }
    shown = None
    if request.evidence:
        name = "plan_evidence"
        about = [*(question for question, _ in request.history[-2:]), request.question]
        shown = excerpts(request.evidence, about)
        values["conversation"] = request.knowledge or "(none)"
    else:
        name = "plan_normal" if request.knowledge else "plan_initial"
        values["example"] = actions[0]
        if request.knowledge:
            values["conversation"] = request.knowledge
    return [_message(name, shown, **values)]


def read_plan(reply: str, request: PlanRequest) -> ActionChain | None:
    """The chain in a model's reply to `plan_messages`; None where there is none to read."""
    actions, most = list(request.actions), request.max_sub_questions
    return parse_chain(without_thought(reply), question=request.question, actions=actions, max_sub_questions=most)


def _plan(request: PlanRequest) -> _Exchange[ActionChain]:
    messages = plan_messages(request)
    reply = yield messages, CHAIN_SCHEMA
    for attempt in (1, 2):
        chain = read_plan(reply, request)
        if chain is not None:
            return chain
        if attempt == 1:
            reply = yield [*messages, AIMessage(cut_field(reply) or "(empty)"), HumanMessage(render("repair"))], CHAIN_SCHEMA
    _log.warning("the plan could not be read twice; looking the question up as it is")
    return ActionChain.single(request.question, next(iter(request.actions)))


def _listed(actions: dict[str, str]) -> str:
    """The actions, one a line; further lines of a description are set in."""
    return "\n".join(_set_in(f"- {name}: {description}") for name, description in actions.items())


def _set_in(text: str) -> str:
    """A text whose further lines, whatever parts them, are set in under its first."""
    return "\n  ".join(text.splitlines())


def _repair(request: RepairRequest) -> _Exchange[dict[int, str]]:
    items = "\n\n".join(
        f"[Sub-question {item.index + 1}]: {flat(item.sub_question)}\n[Action]: {item.action}\n[Action input]: "
        f"{_set_in(item.action_input) or '(none)'}\n[Error]: {flat(item.error)}"
        for item in request.items
    )
    actions = _listed({name: request.actions[name] for name in dict.fromkeys(item.action for item in request.items)})
    message = _message("repair_input", question=request.question, actions=actions, items=items)
    inputs = parse_inputs((yield [message], INPUTS_SCHEMA))
    if len(request.items) == len(inputs) == 1:
        # There is no doubt which one is meant, whatever its number.
        inputs = {request.items[0].index + 1: next(iter(inputs.values()))}
    return {item.index: inputs[item.index + 1] for item in request.items if inputs.get(item.index + 1)}


def _correct(request: CorrectRequest) -> _Exchange[Corrected]:
    """All open sub-questions and the final answer in one call."""
    evidence = _numbered(request)
    about = [*(item["sub_question"] for item in request.chain), *(i.sub_question for i in request.items), request.question]
    supporting = [item["reason"] for item in request.chain if item["status"] in SOLVED]
    numbers = {str(document.id): number for number, document in evidence.items()}
    opened = {item.index: item for item in request.items}
    message = _message(
        "correct",
        question=request.question,
        conversation=request.knowledge or "(none)",
        evidence=excerpts(evidence, about, words=_PIECE_WORDS, keep=supporting),
        chain="\n".join(_chain_line(n, item, numbers, n in opened) for n, item in enumerate(request.chain)),
        language=_in_language(request.language),
    )
    parsed, final = parse_corrections((yield [message], CORRECTIONS_SCHEMA))
    return Corrected(_corrections(request, parsed), final)


def _confirm(request: CorrectRequest) -> _Exchange[Corrected]:
    """Sentences of an answer that verification did not settle, with the evidence that they cite and what is nearest."""
    wanted: dict[int, None] = {}
    for item in request.items:
        near = _nearest(item.guess_answer, request.evidence)
        cited = [n for n, document in enumerate(request.evidence) if document in item.evidence]
        best = [n for n in near if n in cited][:_CONFIRMED_FROM]
        wanted |= dict.fromkeys([*best, *near[: max(1, _CONFIRMED_FROM - len(best))]])
    evidence = {n + 1: request.evidence[n] for n in sorted(wanted)}
    about = [request.question, " ".join(item.guess_answer for item in request.items)]
    failed = {item.index for item in request.items}
    message = _message(
        "confirm",
        question=request.optimized_question or request.question,
        evidence=excerpts(evidence, about, words=_CONFIRMED_WORDS),
        draft="\n".join(f"({n + 1}) {flat(text)}" if n in failed else text for n, text in enumerate(request.draft)),
        language=_in_language(request.language),
    )
    parsed, _ = parse_corrections((yield [message], CONFIRMATIONS_SCHEMA))
    return Corrected(_corrections(request, parsed))


def _corrections(request: CorrectRequest, parsed: Mapping[int, Mapping[str, Any]]) -> list[Correction]:
    return [
        Correction(
            item.index,
            entry["answer"],
            entry["reason"],
            supported=entry["status"] != "none" and bool(entry["answer"]),
            partial=entry["status"] == "partial",
            evidence=[number for number in entry["evidence"] if 0 < number <= len(request.evidence)],
        )
        for item in request.items
        if (entry := parsed.get(item.index + 1)) is not None
    ]


def _numbered(request: CorrectRequest) -> dict[int, Document]:
    """The evidence that the prompt shows, by number: the best of each sub-question, and then what else there is room for."""
    places = {str(document.id): number for number, document in enumerate(request.evidence, 1) if document.page_content}
    lists = [[id_ for id_ in item["evidence"] if id_ in places] for item in request.chain]
    lists.append(list(places))
    chosen: dict[int, None] = {}
    for rank in range(max(map(len, lists), default=0)):
        for ids in lists:
            if rank < len(ids) and len(chosen) < _MOST_PIECES:
                chosen.setdefault(places[ids[rank]])
    return {number: request.evidence[number - 1] for number in sorted(chosen)}


def _nearest(text: str, evidence: Sequence[Document]) -> list[int]:
    """Places of the evidence by the share of the text's words that each piece holds."""
    words = set(content_words(text))
    held = [len(words & set(content_words(document.page_content))) for document in evidence]
    return sorted(range(len(evidence)), key=lambda n: -held[n])


def _chain_line(index: int, item: ChainItem, numbers: Mapping[str, int], is_open: bool) -> str:
    """What the prompt says of one sub-question."""
    marks = "".join(f"[{numbers[id_]}]" for id_ in item["evidence"][:1] if id_ in numbers)
    if is_open:
        told = f"(open; guess, not verified yet: {item['guess_answer']})" if item["guess_answer"] else "(open)"
    elif item["status"] == "failed":
        told = f"(could not be looked up: {item['reason']})"
    elif item["status"] == "unsupported":
        told = "(nothing was found)"
    else:
        told = f"{item['answer']} {marks}".rstrip()
    return flat(f"{index + 1}. {item['sub_question']} {told}")


def _in_language(language: str) -> str:
    return f", in {language}" if language else ""
