"""The messages of the calls to a chat model, from the prompts in `prompts/`, and the results read from its replies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from string import Template

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langgraph_convcoa.chain import SOLVED, ActionChain, ChainItem
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, PlanRequest, RepairRequest
from langgraph_convcoa.reasoning.excerpts import Excerpt, excerpts, fence, unfenced
from langgraph_convcoa.reasoning.parsing import parse_chain, parse_corrections, parse_inputs, without_thought
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.clean import cut_field, flat
from langgraph_convcoa.text.words import content_words
from langgraph_convcoa.verification.sentences import renumbered, statements

_CONFIRMED_FROM = 2  # Pieces of evidence that the prompt shows for each failed sentence of a draft, cited pieces first.
_MOST_PIECES, _PIECE_WORDS = 9, 80
"""The prompt for corrections shows at most this many pieces of evidence, with this many words on average."""


@lru_cache(maxsize=32)
def _template(name: str) -> Template:
    return Template(files(__package__).joinpath("prompts", f"{name}.md").read_text(encoding="utf-8"))


def render(name: str, **values: str) -> str:
    """Fill a prompt: each `$name` in it is replaced by a value. Raises KeyError if a name has no value."""
    return _template(name).substitute(values)


def _message(name: str, evidence: Sequence[Excerpt] | None, **values: str) -> HumanMessage:
    """A prompt as a message. Evidence stands in a fence, and no other value can look like that fence."""
    values = {part: unfenced(text) for part, text in values.items()}
    if evidence is not None:
        values["evidence"] = fence(evidence, values.values())
    return HumanMessage(render(name, **values))


def plan_messages(request: PlanRequest) -> list[BaseMessage]:
    """The messages of the planning call; a planner is trained on them."""
    values = {
        "question": request.question,
        "actions": _listed(request.actions),
        "limit": str(request.max_sub_questions),
        "language": _in_language(request.language),
    }
    if request.evidence:
        about = [*(question for question, _ in request.history[-2:]), request.question]
        shown = excerpts(request.evidence, about)
        ask = f"\n\n{render('plan_ask', language=values['language']).strip()}" if request.may_ask else ""
        values |= _choice(request.actions) | {"conversation": request.knowledge or "(none)", "ask": ask}
        return [_message("plan_evidence", shown, **values)]
    values["example"] = next(iter(request.actions))
    if request.knowledge:
        return [_message("plan_normal", None, conversation=request.knowledge, **values)]
    return [_message("plan_initial", None, **values)]


def _choice(actions: dict[str, str]) -> dict[str, str]:
    """The parts of the prompt over evidence that offer the actions.

    The only action, which found the evidence, is not described unless it takes an input.
    """
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

    An answer that was shown in part stays, and sub-questions behind it are dropped. A question back to the user counts if it
    may be asked and no answer comes with it; a refusal is no answer.
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
    if request.draft:
        about = [request.question, " ".join(item.guess_answer for item in request.items)]
        draft = "\n".join(f"({n + 1}) {flat(text)}" if n in opened else text for n, text in enumerate(request.draft))
        question = request.optimized_question or request.question
        return [_message("confirm", excerpts(evidence, about), question=question, draft=draft, language=language)]
    about = [*(item["sub_question"] for item in request.chain), *(i.sub_question for i in request.items), request.question]
    supporting = [item["reason"] for item in request.chain if item["status"] in SOLVED]
    places = {str(document.id): number for number, document in enumerate(evidence, 1)}
    message = _message(
        "correct",
        excerpts(evidence, about, words=_PIECE_WORDS, keep=supporting),
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
        f"{_set_in(item.action_input) or '(none)'}\n[Error]: {flat(item.error)}"
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
    return "\n".join(_set_in(f"- {name}: {description}") for name, description in actions.items())


def _set_in(text: str) -> str:
    """Indent all lines of a text except the first."""
    return "\n  ".join(text.splitlines())


def _in_language(language: str) -> str:
    return f", in {language}" if language else ""
