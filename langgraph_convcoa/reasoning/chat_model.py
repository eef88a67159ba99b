"""A reasoner around any LangChain chat model: one call plans or answers at once, one more corrects what is left open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import SOLVED, ActionChain, ChainItem
from langgraph_convcoa.reasoning.base import (
    Corrected,
    Correction,
    CorrectRequest,
    PlanRequest,
    Reasoner,
    RepairRequest,
)
from langgraph_convcoa.reasoning.client import AnswerStream, ModelClient
from langgraph_convcoa.reasoning.excerpts import Excerpt, excerpts
from langgraph_convcoa.reasoning.models import load_chat_model
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
from langgraph_convcoa.reasoning.prompts import fence, render, unfenced
from langgraph_convcoa.reasoning.wrapped import ChatModel
from langgraph_convcoa.text.clean import cut_field, flat
from langgraph_convcoa.text.words import content_words
from langgraph_convcoa.verification.answers import SentenceGate
from langgraph_convcoa.verification.sentences import renumbered

_log = logging.getLogger(__name__)
_CONFIRMED_FROM = 2
"""Pieces of evidence that the prompt shows for each failed sentence of a draft, cited pieces first."""
_MOST_PIECES, _PIECE_WORDS = 7, 90
"""The prompt for corrections shows at most this many pieces of evidence, with this many words on average."""


class ChatModelReasoner(Reasoner):
    """Plans and corrects with a chat model.

    Malformed output never stops a turn: a bare model gets a JSON schema, and a reply is searched for JSON. A plan without JSON
    is asked for once more. If the second reply has none either, the question becomes a chain of one node.

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
        self._client = ModelClient(self.model)

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        messages = plan_messages(request)
        reply = self._client.ask(messages, CHAIN_SCHEMA, config, _stream(request.gate, whole_answer=False))
        chain = read_plan(reply, request)
        if chain is None:
            chain = read_plan(self._client.ask(_asked_again(messages, reply), CHAIN_SCHEMA, config), request)
        return chain or _single(request)

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        # Prompts and replies may be long, so threads make and read them.
        messages = await asyncio.to_thread(plan_messages, request)
        reply = await self._client.aask(messages, CHAIN_SCHEMA, config, _stream(request.gate, whole_answer=False))
        chain = await asyncio.to_thread(read_plan, reply, request)
        if chain is None:
            reply = await self._client.aask(_asked_again(messages, reply), CHAIN_SCHEMA, config)
            chain = await asyncio.to_thread(read_plan, reply, request)
        return chain or _single(request)

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        numbers = _shown_numbers(request)
        messages, schema = _correct_messages(request, numbers)
        reply = self._client.ask(messages, schema, config, _stream(request.gate, whole_answer=True, numbers=numbers))
        return _read_corrections(reply, request, numbers)

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        numbers = await asyncio.to_thread(_shown_numbers, request)
        messages, schema = await asyncio.to_thread(_correct_messages, request, numbers)
        stream = _stream(request.gate, whole_answer=True, numbers=numbers)
        reply = await self._client.aask(messages, schema, config, stream)
        return await asyncio.to_thread(_read_corrections, reply, request, numbers)

    def repair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        """New action inputs from one call, without those that the reply leaves out."""
        return _read_inputs(self._client.ask(_repair_messages(request), INPUTS_SCHEMA, config), request)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return _read_inputs(await self._client.aask(_repair_messages(request), INPUTS_SCHEMA, config), request)


def _stream(gate: SentenceGate | None, *, whole_answer: bool, numbers: Sequence[int] | None = None) -> AnswerStream | None:
    """The stream of a reply, if a gate shows its answer; otherwise the reply is asked for as a whole."""
    return AnswerStream(gate, whole_answer=whole_answer, numbers=numbers) if gate is not None else None


def _message(name: str, evidence: Sequence[Excerpt] | None = None, **values: str) -> HumanMessage:
    """A prompt as a message. Evidence stands in a fence, and no other value can look like that fence."""
    values = {part: unfenced(text) for part, text in values.items()}
    if evidence is not None:
        values["evidence"] = fence(evidence, values.values())
    return HumanMessage(render(name, **values))


def plan_messages(request: PlanRequest) -> list[BaseMessage]:
    """The messages of the planning call; a planner is trained on them."""
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
    """The chain in a model's reply to `plan_messages`; None if it holds none."""
    actions, most = list(request.actions), request.max_sub_questions
    return parse_chain(without_thought(reply), question=request.question, actions=actions, max_sub_questions=most)


def _asked_again(messages: Sequence[BaseMessage], reply: str) -> list[BaseMessage]:
    """The messages that ask once more for a plan, after a reply that could not be read."""
    return [*messages, AIMessage(cut_field(reply) or "(empty)"), HumanMessage(render("repair"))]


def _single(request: PlanRequest) -> ActionChain:
    _log.warning("the plan could not be read twice; looking the question up as it is")
    return ActionChain.single(request.question, next(iter(request.actions)))


def _listed(actions: dict[str, str]) -> str:
    """One line for each action; further lines of a description are indented."""
    return "\n".join(_set_in(f"- {name}: {description}") for name, description in actions.items())


def _set_in(text: str) -> str:
    """Indent all lines of a text except the first."""
    return "\n  ".join(text.splitlines())


def _repair_messages(request: RepairRequest) -> list[BaseMessage]:
    items = "\n\n".join(
        f"[Sub-question {item.index + 1}]: {flat(item.sub_question)}\n[Action]: {item.action}\n[Action input]: "
        f"{_set_in(item.action_input) or '(none)'}\n[Error]: {flat(item.error)}"
        for item in request.items
    )
    actions = _listed({name: request.actions[name] for name in dict.fromkeys(item.action for item in request.items)})
    return [_message("repair_input", question=request.question, actions=actions, items=items)]


def _read_inputs(reply: str, request: RepairRequest) -> dict[int, str]:
    inputs = parse_inputs(reply)
    if len(request.items) == len(inputs) == 1:
        # One input for one item: its number does not matter.
        inputs = {request.items[0].index + 1: next(iter(inputs.values()))}
    return {item.index: inputs[item.index + 1] for item in request.items if inputs.get(item.index + 1)}


def _correct_messages(request: CorrectRequest, numbers: Sequence[int]) -> tuple[list[BaseMessage], dict[str, Any]]:
    """The messages of the second call, which show some of the evidence, and the schema of the reply."""
    evidence = [request.evidence[number - 1] for number in numbers]
    if request.draft:
        return [_confirm_message(request, evidence)], CONFIRMATIONS_SCHEMA
    return [_correct_message(request, evidence)], CORRECTIONS_SCHEMA


def _read_corrections(reply: str, request: CorrectRequest, numbers: Sequence[int]) -> Corrected:
    """The corrections in a reply, with the numbers of the evidence instead of those of the prompt."""
    parsed, final = parse_corrections(reply)
    return Corrected(_corrections(request, parsed, numbers), "" if request.draft else renumbered(final, numbers))


def _correct_message(request: CorrectRequest, evidence: Sequence[Document]) -> HumanMessage:
    """The prompt that asks for all open sub-questions and the final answer."""
    about = [*(item["sub_question"] for item in request.chain), *(i.sub_question for i in request.items), request.question]
    supporting = [item["reason"] for item in request.chain if item["status"] in SOLVED]
    numbers = {str(document.id): number for number, document in enumerate(evidence, 1)}
    opened = {item.index: item for item in request.items}
    return _message(
        "correct",
        question=request.question,
        conversation=request.knowledge or "(none)",
        evidence=excerpts(evidence, about, words=_PIECE_WORDS, keep=supporting),
        chain="\n".join(_chain_line(n, item, numbers, n in opened) for n, item in enumerate(request.chain)),
        language=_in_language(request.language),
    )


def _confirm_message(request: CorrectRequest, evidence: Sequence[Document]) -> HumanMessage:
    """The prompt that asks about the failed sentences of an answer."""
    about = [request.question, " ".join(item.guess_answer for item in request.items)]
    failed = {item.index for item in request.items}
    return _message(
        "confirm",
        question=request.optimized_question or request.question,
        evidence=excerpts(evidence, about),
        draft="\n".join(f"({n + 1}) {flat(text)}" if n in failed else text for n, text in enumerate(request.draft)),
        language=_in_language(request.language),
    )


def _corrections(request: CorrectRequest, parsed: Mapping[int, Mapping[str, Any]], numbers: Sequence[int]) -> list[Correction]:
    return [
        Correction(
            item.index,
            entry["answer"],
            entry["reason"],
            supported=entry["status"] != "none" and bool(entry["answer"]),
            partial=entry["status"] == "partial",
            evidence=[numbers[number - 1] for number in entry["evidence"] if 0 < number <= len(numbers)],
        )
        for item in request.items
        if (entry := parsed.get(item.index + 1)) is not None
    ]


def _shown_numbers(request: CorrectRequest) -> list[int]:
    """Numbers of the evidence that the prompt shows. The prompt itself counts from 1.

    For a draft: the evidence that its failed sentences cite, and the nearest evidence. Otherwise: the best evidence of each
    sub-question, then the next best, up to `_MOST_PIECES`.
    """
    if request.draft:
        return _numbers_to_confirm(request)
    places = {str(document.id): number for number, document in enumerate(request.evidence, 1) if document.page_content}
    lists = [[id_ for id_ in item["evidence"] if id_ in places] for item in request.chain]
    lists.append(list(places))
    chosen: dict[int, None] = {}
    for rank in range(max(map(len, lists), default=0)):
        for ids in lists:
            if rank < len(ids) and len(chosen) < _MOST_PIECES:
                chosen.setdefault(places[ids[rank]])
    return sorted(chosen)


def _numbers_to_confirm(request: CorrectRequest) -> list[int]:
    wanted: set[int] = set()
    for item in request.items:
        near = _nearest(item.guess_answer, request.evidence)
        cited = [n for n, document in enumerate(request.evidence) if document in item.evidence]
        best = [n for n in near if n in cited][:_CONFIRMED_FROM]
        wanted |= {*best, *near[: max(1, _CONFIRMED_FROM - len(best))]}
    return [n + 1 for n in sorted(wanted)]


def _nearest(text: str, evidence: Sequence[Document]) -> list[int]:
    """Indexes of the evidence: the piece that has the most words of the text comes first."""
    words = set(content_words(text))
    held = [len(words & set(content_words(document.page_content))) for document in evidence]
    return sorted(range(len(evidence)), key=lambda n: -held[n])


def _chain_line(index: int, item: ChainItem, numbers: Mapping[str, int], is_open: bool) -> str:
    """The line of the prompt about one sub-question."""
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
