"""A reasoner around any LangChain chat model: one call plans or answers at once, one more corrects what is left open.

`plan`, `correct` and `repair` make the messages of a call from `prompts.md`, ask the model (`client.py`), and read
the JSON in its reply (`parsing.py`). Evidence is numbered: [n] in a prompt and in a reply is its n-th piece.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import SOLVED, ActionChain, ChainItem
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, PlanRequest, Reasoner, RepairRequest
from langgraph_convcoa.reasoning.client import ModelClient
from langgraph_convcoa.reasoning.excerpts import Excerpt, excerpts, fence, unfenced
from langgraph_convcoa.reasoning.parsing import (
    ANSWER_SCHEMA,
    ASKING_SCHEMA,
    CHAIN_SCHEMA,
    CONFIRMATIONS_SCHEMA,
    CORRECTIONS_SCHEMA,
    INPUTS_SCHEMA,
    parse_chain,
    parse_corrections,
    parse_inputs,
    without_thought,
)
from langgraph_convcoa.reasoning.streaming import AnswerStream, SentenceGate
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.clean import cut_field, flat
from langgraph_convcoa.text.words import content_words
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import renumbered, statements

_log = logging.getLogger(__name__)
_CONFIRMED_FROM, _CONFIRMED_WORDS = 3, 250
"""For each failed sentence: this many pieces of evidence, cited pieces first, with this many words on average."""
_PASSAGE_WORDS = 150
"""Average number of words of an excerpt. Fewer lose facts that answers need; more cost tokens and lengthen answers."""
_MOST_PIECES, _PIECE_WORDS = 9, 80
"""The prompt for corrections shows at most this many pieces of evidence, with this many words on average."""


class ChatModelReasoner(ModelClient, Reasoner):
    """Plans and corrects with a chat model. The arguments are those of `ModelClient`.

    Malformed output never stops a turn: a reply is searched for JSON. A plan without JSON is asked for once more. If the
    second reply has none either, the question becomes a chain of one node.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> plan = '{"optimized_question": "Who?", "chain": [{"action": "docs", "sub": "Who wrote it?"}]}'
        >>> reasoner = ChatModelReasoner(FakeListChatModel(responses=[plan]))
        >>> reasoner.plan(PlanRequest("Who?", {"docs": "local documents"})).nodes[0].sub_question
        'Who wrote it?'
    """

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        """The answer or the chain, in the reply to `plan_evidence`, or without evidence to `plan_initial` or `plan_normal`."""
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
        """The corrections in the reply to `correct`, or to `confirm` for refused sentences of the planner's answer."""
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


@lru_cache(maxsize=1)
def _prompts() -> dict[str, Template]:
    """The prompts in `prompts.md` by name; each stands below its heading."""
    text = files(__package__).joinpath("prompts.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^# (\w+)\n\n", text, flags=re.MULTILINE)
    return {name: Template(f"{prompt.rstrip()}\n") for name, prompt in zip(parts[::2], parts[1::2], strict=True)}


def render(name: str, **values: str) -> str:
    """Fill a prompt: each `$name` in it is replaced by a value. Raises KeyError if a name has no value."""
    return _prompts()[name].substitute(values)


def _message(name: str, evidence: Sequence[Excerpt] | None, **values: str) -> HumanMessage:
    """A prompt as a message. Evidence stands in a fence, and no other value can look like that fence."""
    values = {part: unfenced(text) for part, text in values.items()}
    if evidence is not None:
        values["evidence"] = fence(evidence, values.values())
    return HumanMessage(render(name, **values))


def plan_messages(request: PlanRequest) -> list[BaseMessage]:
    """The messages of the planning call; planners are trained on them. An excerpt is a passage's best sentences."""
    values = {
        "question": request.question,
        "actions": _listed(request.actions),
        "limit": str(request.max_sub_questions),
        "language": _in_language(request.language),
    }
    if request.evidence:
        about = [*(question for question, _ in request.history[-2:]), request.question]
        shown = excerpts(request.evidence, about, words=_PASSAGE_WORDS)
        ask = f"\n\n{render('plan_ask', language=values['language']).strip()}" if request.may_ask else ""
        values |= _choice(request.actions) | {"conversation": request.knowledge or "(none)", "ask": ask}
        return [_message("plan_evidence", shown, **values)]
    values["example"] = next(iter(request.actions))
    if request.knowledge:
        return [_message("plan_normal", None, conversation=request.knowledge, **values)]
    return [_message("plan_initial", None, **values)]


def _choice(actions: dict[str, str]) -> dict[str, str]:
    """The parts of the prompt over evidence that offer the actions."""
    # The only action, which found the evidence, is not described unless it takes an input.
    [(name, description), *others] = actions.items()
    if others or "action_input" in description:
        listed = f"Actions:\n{_listed(actions)}\n\n"
        return {"actions": listed, "action": "its name", "input": 'what the action asks for, else ""'}
    return {"actions": "", "action": json.dumps(name), "input": '""'}


def plan_again_messages(messages: Sequence[BaseMessage], reply: str) -> list[BaseMessage]:
    """The messages that ask once more for a plan, after a reply that could not be read."""
    return [*messages, AIMessage(cut_field(reply) or "(empty)"), HumanMessage(render("plan_again"))]


def read_plan(reply: str, request: PlanRequest) -> ActionChain | None:
    """The chain in a model's reply to `plan_messages`; None if it holds none.

    If the reply has a chain and an answer, both are kept, and the chain is looked up. If the user has seen a part of the
    answer, the chain is dropped. A clarifying question counts if it may be asked and no answer but a refusal comes with it.
    """
    actions, most = list(request.actions), request.max_sub_questions
    chain = parse_chain(without_thought(reply), question=request.question, actions=actions, max_sub_questions=most)
    if chain and request.gate and request.gate.shown:
        return chain.model_copy(update={"nodes": (), "clarification": ""})
    if chain is None or not chain.clarification:
        return chain
    asked = without_marks(chain.clarification)
    asks = request.may_ask and not chain.nodes and not {*"?？؟"}.isdisjoint(asked)
    answers = without_marks(chain.draft_answer) != asked and any(one.claim for one in statements(chain.draft_answer))
    if answers or not asks:
        return chain.model_copy(update={"clarification": ""})
    return chain.model_copy(update={"clarification": asked, "draft_answer": ""})


def correct_messages(request: CorrectRequest, numbers: Sequence[int]) -> list[BaseMessage]:
    """The messages of the second call, which show some of the evidence.

    They ask about the failed sentences of a draft, or for all open sub-questions and the final answer.
    """
    evidence = [request.evidence[number - 1] for number in numbers]
    opened = {item.index: item for item in request.items}
    language = _in_language(request.language)
    # The evidence for a guess is not cut: otherwise the model would remove true parts of the guess.
    guessed = [one.text for item in request.items for one in statements(cut_field(item.guess_answer))]
    kept = [quote for text in guessed for quote in Evidence.of(evidence).quotes(text)]
    if request.draft:
        about = [request.question, " ".join(item.guess_answer for item in request.items)]
        draft = "\n".join(f"({n + 1}) {flat(text)}" if n in opened else text for n, text in enumerate(request.draft))
        question = request.optimized_question or request.question
        shown = excerpts(evidence, about, words=_CONFIRMED_WORDS, keep=kept)
        return [_message("confirm", shown, question=question, draft=draft, language=language)]
    asked = [item["sub_question"] for item in request.chain]
    about = [*(i.guess_answer for i in request.items), *asked, *(i.sub_question for i in request.items), request.question]
    kept += [item["reason"] for item in request.chain if item["status"] in SOLVED]
    places = {str(document.id): number for number, document in enumerate(evidence, 1)}
    message = _message(
        "correct",
        excerpts(evidence, about, words=_PIECE_WORDS, keep=kept),
        question=request.question,
        conversation=request.knowledge or "(none)",
        chain="\n".join(_chain_line(n, item, places, n in opened) for n, item in enumerate(request.chain)),
        language=language,
    )
    return [message]


def _chain_line(index: int, item: ChainItem, numbers: Mapping[str, int], is_open: bool) -> str:
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


def shown_numbers(request: CorrectRequest) -> list[int]:
    """Numbers of the evidence that `correct_messages` show. The prompt itself counts from 1.

    For a draft: the evidence that its failed sentences cite, and the nearest evidence. Otherwise: the best evidence of each
    sub-question, then the next best, up to `_MOST_PIECES`.
    """
    if request.draft:
        wanted: set[int] = set()
        for item in request.items:
            near = _nearest(item.guess_answer, request.evidence)
            best = [number for number in near if request.evidence[number - 1] in item.evidence][:_CONFIRMED_FROM]
            wanted |= {*best, *near[: max(1, _CONFIRMED_FROM - len(best))]}
        return sorted(wanted)
    places = {str(document.id): number for number, document in enumerate(request.evidence, 1) if document.page_content}
    lists = [[id_ for id_ in item["evidence"] if id_ in places] for item in request.chain]
    lists.append(list(places))
    chosen: dict[int, None] = {}
    for rank in range(max(map(len, lists), default=0)):
        for ids in lists:
            if rank < len(ids) and len(chosen) < _MOST_PIECES:
                chosen.setdefault(places[ids[rank]])
    return sorted(chosen)


def _nearest(text: str, evidence: Sequence[Document]) -> list[int]:
    """Numbers of the evidence: the piece that has the most words of the text comes first."""
    words = set(content_words(text))
    held = [len(words & set(content_words(document.page_content))) for document in evidence]
    return sorted(range(1, len(evidence) + 1), key=lambda number: -held[number - 1])


def read_corrections(reply: str, request: CorrectRequest, numbers: Sequence[int]) -> Corrected:
    """The corrections in a reply, with the numbers of the evidence instead of those of the prompt."""
    parsed, final = parse_corrections(reply)
    corrections = [
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
    return Corrected(corrections, "" if request.draft else renumbered(final, numbers))


def repair_messages(request: RepairRequest) -> list[BaseMessage]:
    """The messages that ask for new action inputs."""
    items = "\n\n".join(
        f"[Sub-question {item.index + 1}]: {flat(item.sub_question)}\n[Action]: {item.action}\n[Action input]: "
        # Further lines are indented.
        + ("\n  ".join(item.action_input.splitlines()) or "(none)")
        + f"\n[Error]: {flat(item.error)}"
        for item in request.items
    )
    actions = _listed({name: request.actions[name] for name in dict.fromkeys(item.action for item in request.items)})
    return [_message("repair", None, question=request.question, actions=actions, items=items)]


def read_inputs(reply: str, request: RepairRequest) -> dict[int, str]:
    """The action inputs in a reply to `repair_messages`, by the index of the sub-question."""
    inputs = parse_inputs(reply)
    if len(request.items) == len(inputs) == 1:
        # One input for one item: its number does not matter.
        inputs = {request.items[0].index + 1: next(iter(inputs.values()))}
    return {item.index: inputs[item.index + 1] for item in request.items if inputs.get(item.index + 1)}


def _listed(actions: dict[str, str]) -> str:
    """One line for each action; further lines of a description are indented."""
    return "\n".join("\n  ".join(f"- {name}: {text}".splitlines()) for name, text in actions.items())


def _in_language(language: str) -> str:
    return f", in {language}" if language else ""
