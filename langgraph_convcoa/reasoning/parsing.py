"""JSON schemas of a model's replies, and a tolerant reader of them.

`json_repair` mends the syntax. This module reads other names of keys and actions, flags as text, and numbers in text.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import json_repair

from langgraph_convcoa.chain import ActionChain, ActionNode
from langgraph_convcoa.text.clean import LONGEST_ANSWER, LONGEST_FIELD, clean_value, cut_answer, cut_field

LONGEST_REPLY = 2 * LONGEST_ANSWER  # At most this many characters of a reply are read.
_LONGEST_REPAIRED = LONGEST_FIELD  # At most this many characters of malformed JSON are repaired.
_JSON = re.compile(r"\{\s*+(?:[\"'“‘`/]|\w{1,60}+\s*+:)|\[\s*+[\[{\"'“]")
"""The beginning of an object with a key, or of a list of objects or texts; not "{so}" or "[1]" in prose."""
_MOST_STEPS = 100  # At most this many entries of a list in a reply are read.
_BROKEN = 0.1  # Share of an answer's characters that may be unprintable.
_CHAIN_KEYS = ("chain", "actionchain", "reasoningchain", "steps", "nodes", "subquestions", "actions")
_SUB_KEYS = ("sub", "subquestion", "question", "query", "subq")
_GUESS_KEYS = ("guessanswer", "guess", "initialanswer", "answer")
_FINAL_KEYS = ("finalanswer", "final", "draftanswer", "answer")
_CLARIFICATION_KEYS = ("clarification", "clarifyingquestion", "questionback")
_OPTIMIZED_KEYS = ("optimizedquestion", "optimisedquestion", "rewrittenquestion")
_INPUT_KEYS = ("actioninput", "input", "sql", "keywords")
_ANSWER_LISTS = ("answers", "corrections", "chain", "results", "sentences")
_THOUGHT = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)\s*", re.DOTALL)


def _object(title: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(title: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(title, properties)}


_TEXT, _FLAG, _INDEX = {"type": "string"}, {"type": "boolean"}, {"type": "integer"}
_STEP = {"action": _TEXT, "sub": _TEXT, "guess_answer": _TEXT, "missing_flag": _FLAG, "action_input": _TEXT}
_NUMBERS = {"type": "array", "items": _INDEX}
_STATUS = {"type": "string", "enum": ["supported", "partial", "none"]}
_CORRECTION = {"index": _INDEX, "answer": _TEXT, "evidence": _NUMBERS, "status": _STATUS}
_INPUT = {"index": _INDEX, "action_input": _TEXT}
CHAIN_SCHEMA = _object(
    "action_chain", {"optimized_question": _TEXT, "chain": _list_of("action_node", _STEP), "final_answer": _TEXT}
)
_LOOK_UP = {"action": _TEXT, "sub": _TEXT, "action_input": _TEXT}
_OVER_EVIDENCE = {"final_answer": _TEXT, "chain": _list_of("look_up", _LOOK_UP), "optimized_question": _TEXT}
ANSWER_SCHEMA = _object("answer_or_chain", _OVER_EVIDENCE) | {"required": ["optimized_question"]}
"""The reply over evidence: an answer or a chain. The answer is the first field, so that its start is shown early."""
_ASKING = {"clarification": _TEXT, **_OVER_EVIDENCE}
ASKING_SCHEMA = _object("answer_or_question", _ASKING) | {"required": ["optimized_question"]}
INPUTS_SCHEMA = _object("action_inputs", {"inputs": _list_of("action_input", _INPUT)})
CONFIRMATIONS_SCHEMA = _object("confirmations", {"answers": _list_of("confirmation", _CORRECTION)})
CORRECTIONS_SCHEMA = _object("corrections", {"answers": _list_of("correction", _CORRECTION), "final_answer": _TEXT})


def parse_chain(
    output: str | Mapping[str, Any], *, question: str, actions: Iterable[str], max_sub_questions: int = 6
) -> ActionChain | None:
    """Read an action chain from a model's text or structured output; None if there is none.

    An unknown action is replaced by the closest of `actions`, else by the first. Repeated sub-questions, and those beyond
    `max_sub_questions`, are dropped.
    """
    data, names = read_json(output), list(actions)
    if isinstance(data, list):
        data = _whole(data)
    if not isinstance(data, Mapping):
        return None
    fields = _fold(data)
    nested = fields.get("question")
    if isinstance(nested, Mapping):
        fields = {**_fold(nested), **{key: value for key, value in fields.items() if key != "question"}}
    steps = _first(fields, _CHAIN_KEYS)
    draft, optimized = _answer(_first(fields, _FINAL_KEYS)), _text(_first(fields, _OPTIMIZED_KEYS))
    asked = _text(_first(fields, _CLARIFICATION_KEYS))
    if steps is None and not draft and not optimized and not asked:
        return None
    nodes: dict[str, ActionNode] = {}
    for step in islice(_flatten(steps), _MOST_STEPS):
        if len(nodes) < max_sub_questions and (node := _node(step, names)):
            nodes.setdefault(node.sub_question.casefold(), node)
    steps_ = tuple(nodes.values())
    return ActionChain(optimized_question=optimized or question, nodes=steps_, draft_answer=draft, clarification=asked)


def parse_corrections(output: str | Mapping[str, Any]) -> tuple[dict[int, dict[str, Any]], str]:
    """Read `{"answers": [{"index", "answer", "evidence", "status"}], "final_answer"}`: answers by index, and the final answer.

    Indexes count from 1. A reply without the list, or in plain text, is the final answer.
    """
    if isinstance(output, str) and "{" not in output:
        return {}, _answer(output)
    data = read_json(output)
    fields = _fold(data) if isinstance(data, Mapping) else {}
    final = _answer(_first(fields, ("finalanswer", "final", "draftanswer")))
    listed = isinstance(data, list) or _first(fields, _ANSWER_LISTS) is not None
    if not listed and not final and "index" not in fields:
        final = _answer(fields.get("answer"))
    found = {
        number: {
            "answer": _text(answer),
            "evidence": _integers(entry.get("evidence")),
            "reason": _text(entry.get("reason")),
            "status": _status(entry),
        }
        for number, entry in (_numbered(data, _ANSWER_LISTS) if listed or "index" in fields else ())
        if (answer := _first(entry, ("answer", "correctedanswer", "solvedanswer", "sentence"))) is not None
    }
    return found, final


def parse_inputs(output: str | Mapping[str, Any]) -> dict[int, str]:
    """Read `{"inputs": [{"index", "action_input"}]}`: the inputs by index from 1, without empty inputs."""
    return {
        number: text
        for number, fields in _numbered(read_json(output), ("inputs", "actioninputs", "queries", "results"))
        if (text := _input(_first(fields, ("actioninput", "input", "sql", "query"))))
    }


def _numbered(data: Any, keys: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The entries of the list under one of the keys, each with its `index`, by default its position."""
    if isinstance(data, Mapping):
        entries = _first(_fold(data), keys)
        data = [data] if entries is None else entries
    for position, entry in enumerate(islice(_flatten(data), _MOST_STEPS), 1):
        if isinstance(entry, Mapping):
            fields = _fold(entry)
            number = re.search(r"\d{1,9}", str(fields.get("index", position)))
            yield int(number.group()) if number else position, fields


def read_json(output: str | Mapping[str, Any]) -> Any:
    """The JSON value in a model's text, repaired if needed; None if the text holds no object or list."""
    if isinstance(output, Mapping):
        return clean_value(output)
    text = output[:LONGEST_REPLY]
    fence = re.search(r"```(?:json)?\s*(.*?)(?:```|\Z)", text, re.DOTALL | re.IGNORECASE)
    if fence and "{" in fence.group(1):
        text = fence.group(1)
    found = _JSON.search(text)
    return clean_value(_loads(text[found.start() :])) if found else None


def _loads(text: str) -> Any:
    """The JSON value at the beginning of a text, repaired if it is malformed."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0]
    except (ValueError, RecursionError):
        pass
    try:
        value = json_repair.loads(text[:_LONGEST_REPAIRED], skip_json_loads=True)
    except (ValueError, RecursionError):
        return None  # nested deeper than any reply
    return value if isinstance(value, dict | list) else None


def _whole(values: list[Any]) -> Any:
    """The plan in a reply that is a list: the first object with a chain, or else the list itself as the chain."""
    for value in values:
        if isinstance(value, Mapping) and _first(_fold(value), _CHAIN_KEYS) is not None:
            return value
    steps = [step for step in islice(_flatten(values), _MOST_STEPS) if isinstance(step, Mapping)]
    return {"chain": values} if any(_node(step, ["-"]) for step in steps) else None


def _node(step: Any, actions: list[str]) -> ActionNode | None:
    if isinstance(step, str):
        return ActionNode(action=actions[0], sub_question=step.strip(), missing=True) if step.strip() else None
    if not isinstance(step, Mapping):
        return None
    fields = _fold(step)
    sub = _text(_first(fields, _SUB_KEYS))
    if not sub:
        return None
    guess = _text(_first(fields, _GUESS_KEYS))
    return ActionNode(
        action=_closest(_text(fields.get("action")), actions),
        sub_question=sub,
        guess_answer=guess,
        missing=_flag(fields.get("missingflag", fields.get("missing")), default=False) or not guess,
        action_input=_input(_first(fields, _INPUT_KEYS)),
    )


def _closest(name: str, actions: list[str]) -> str:
    folded = {_key(action): action for action in actions}
    wanted = _key(name)
    if wanted in folded:
        return folded[wanted]
    for key, action in folded.items():
        if wanted and (wanted in key or key in wanted):
            return action
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else actions[0]


def _flatten(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, list) and depth < 10:
        for item in value:
            yield from _flatten(item, depth + 1)
    elif isinstance(value, Mapping) and depth == 0 and value and all(isinstance(item, Mapping) for item in value.values()):
        yield from value.values()
    elif value is not None:
        yield value


def _fold(data: Mapping[Any, Any]) -> dict[str, Any]:
    return {_key(str(key)): value for key, value in data.items()}


def _key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _first(fields: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


def _text(value: Any) -> str:
    return cut_field(_whole_text(value)).strip()


def _whole_text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(filter(None, map(_whole_text, value)))
    return "" if isinstance(value, Mapping | bool | None) else str(value).strip()


def _answer(value: Any) -> str:
    """A final answer; "" without letters and digits, or with many unprintable signs (a model that broke down)."""
    text = cut_answer(_whole_text(value))
    broken = sum(sign == "\ufffd" or not (sign.isprintable() or sign.isspace()) for sign in text)
    return text if any(map(str.isalnum, text)) and broken <= _BROKEN * len(text) else ""


def _input(value: Any) -> str:
    """An action's input as text; an object (arguments of a tool) becomes JSON."""
    if not isinstance(value, Mapping) or not value:
        return _text(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_FIELD else ""


def _flag(value: Any, *, default: bool) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip():
        return value.strip().lower() in ("true", "yes", "1", "y")
    return bool(value) if isinstance(value, (int, float)) else default


def _integers(value: Any) -> list[int]:
    """The numbers in a list, or in a text such as "[1], [3]"."""
    values = value if isinstance(value, list) else [value]
    return [int(digits[:9]) for entry in values[:_MOST_STEPS] for digits in re.findall(r"\d+", _text(entry))]


def _status(fields: Mapping[str, Any]) -> str:
    said = _key(_text(fields.get("status")))
    if said in ("none", "unsupported", "notsupported", "no", "false", "missing"):
        return "none"
    if said.startswith("part"):
        return "partial"
    return "supported" if _flag(fields.get("supported"), default=True) else "none"


def without_thought(text: str) -> str:
    """A text without the thought (`<think>`) at its beginning."""
    return _THOUGHT.sub("", text, count=1)
