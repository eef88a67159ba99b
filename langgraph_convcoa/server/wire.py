"""The wire format: JSON and server-sent events as LangGraph's server writes them, and the requests of its clients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, ValidationError

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.clean import clean

GRAPH = "convcoa"  # The name of the graph, and of the assistant for the first collection.
MODES = {"values": "values", "messages": "messages", "messages-tuple": "messages", "custom": "custom", "updates": "updates"}
"""Stream modes of a client -> stream modes of the graph. Other modes are ignored."""
SETTINGS = ("model", "k", "threshold", "language", "recall_answers", "max_sub_questions", "max_corrections", "approve")
"""Settings of a run that a client may set. The server offers the models, and sets limits of actions and shared knowledge."""
_STRATEGIES = ("reject", "interrupt", "rollback", "enqueue")
_ROLES = {"human": "human", "user": "human", "ai": "ai", "assistant": "ai"}
_MOST_MESSAGES = 1_000


def to_json(value: Any) -> bytes:
    r"""A value as ASCII JSON; messages, documents and interrupts as objects of their fields.

    Example:
        >>> to_json({"text": "\ud800 <b>", "score": float("nan")})
        b'{"text":"\\ud800 <b>","score":null}'
    """
    try:
        return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":")).encode("ascii")
    except ValueError:
        loose = json.dumps(value, default=_plain, separators=(",", ":"))
        return to_json(json.loads(loose, parse_constant=lambda _: None))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if hasattr(value, "value") and hasattr(value, "id"):
        return {"value": value.value, "id": value.id}
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


def event(name: str, data: bytes, number: int) -> bytes:
    """A server-sent event with its number."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode("ascii"), data)


@dataclass(frozen=True)
class RunRequest:
    """A run that a client asks for.

    `given` is the graph's input, None to resume a turn. `decisions` resume a turn that waits for approval. If the run replaces
    the last turn, `before` is the id of the state before that turn.
    """

    given: dict[str, Any] | None = None
    decisions: Any = None
    modes: frozenset[str] = frozenset({"values"})
    assistant: str = GRAPH
    strategy: str = "reject"
    cancel_on_disconnect: bool = False
    create: bool = False
    before: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def context(self, own: ConvCoAContext, models: Sequence[str] = ()) -> ConvCoAContext:
        """The server's settings, changed by those of the run. A run cannot remove the server's approvals."""
        if not self.settings:
            return own
        model = self.settings.get("model") or None
        if model is not None and model not in models:
            raise InputError(f"the model of a run must be one of the server's: {', '.join(models) or 'it has none'}")
        approve = [*dict.fromkeys((*own.approve, *self.settings.get("approve", ())))]
        # The first model is the graph's own, which is loaded already.
        chosen = {**self.settings, "approve": approve, "model": None if models and model == models[0] else model}
        try:
            return type(own).model_validate({**own.model_dump(), **chosen})
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"the setting {'.'.join(map(str, first['loc']))!r}: {first['msg']}") from None


def read_run(body: Mapping[str, Any]) -> RunRequest:
    """The request in the body of a run. Raises InputError if it cannot be used."""
    command = body.get("command") or {}
    if not isinstance(command, Mapping) or command.keys() - {"resume"}:
        raise InputError('the command of a run must be {"resume": ...}')
    decisions = command.get("resume")
    modes = body.get("stream_mode") or ["values"]
    wanted = [modes] if isinstance(modes, str) else modes
    if not isinstance(wanted, Sequence) or not all(isinstance(mode, str) for mode in wanted):
        raise InputError(f"stream_mode must be a list of {', '.join(MODES)}")
    strategy = body.get("multitask_strategy") or "reject"
    if strategy not in _STRATEGIES:
        raise InputError(f"multitask_strategy must be one of {', '.join(_STRATEGIES)}")
    settings = body.get("context") or {}
    if not isinstance(settings, Mapping):
        raise InputError("the context of a run must be an object of settings")
    if unknown := [str(name) for name in settings if name not in SETTINGS]:
        raise InputError(f"the setting {unknown[0]!r} is not one that a run may set: these are {', '.join(SETTINGS)}")
    approve = settings.get("approve", [])
    if not isinstance(approve, list) or not all(isinstance(name, str) for name in approve):
        raise InputError("the setting 'approve' must be a list of names")
    forked = body.get("checkpoint") or {}
    before = body.get("checkpoint_id") or (forked.get("checkpoint_id") if isinstance(forked, Mapping) else None)
    return RunRequest(
        given=None if decisions is not None else read_input(body.get("input")),
        decisions=decisions,
        modes=frozenset(MODES[mode] for mode in wanted if mode in MODES),
        assistant=str(body.get("assistant_id") or GRAPH),
        strategy=strategy,
        cancel_on_disconnect=body.get("on_disconnect") == "cancel",
        create=body.get("if_not_exists") == "create",
        before=str(before or "") if decisions is None else "",
        settings=dict(settings),
    )


def read_input(given: Any) -> dict[str, Any] | None:
    """The graph's input: a question or messages, or None to resume a turn. Raises InputError for anything else."""
    if given is None or given == {}:
        return None
    if isinstance(given, Mapping):
        if isinstance(question := given.get("question"), str) and question.strip():
            return {"question": clean(question)}
        if isinstance(messages := given.get("messages"), Mapping | str):
            messages = [messages]
        if isinstance(messages, list) and messages and len(messages) <= _MOST_MESSAGES:
            read = [message for one in messages if (message := _message(one)) is not None]
            if read and read[-1].type == "human":
                return {"messages": read}
    raise InputError('the input must be {"question": "..."}, or {"messages": [...]} whose last one is the user\'s')


def _message(given: Any) -> BaseMessage | None:
    """A message with plain text; None for messages of tools, which are ignored."""
    if isinstance(given, str):
        return HumanMessage(clean(given))
    if not isinstance(given, Mapping):
        raise InputError("a message must be an object with a role and its content")
    role = str(given.get("role") or given.get("type"))
    if role not in _ROLES:
        return None
    content = given.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    if not isinstance(content, str):
        raise InputError("the content of a message must be text")
    kind = HumanMessage if _ROLES[role] == "human" else AIMessage
    identity = given.get("id")
    return kind(clean(content), id=clean(identity)[:200] if isinstance(identity, str) and identity else None)
