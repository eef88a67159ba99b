"""Threads as files: exported as JSON or Markdown, and imported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.storage import FORMAT, later_format
from langgraph_convcoa.text.clean import clean_value, flat, json_text, printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KIND = "langgraph_convcoa thread"


@cache
def lasting_fields() -> dict[str, TypeAdapter[Any]]:
    """The fields of the state that outlast a turn, with their types."""
    from pydantic import TypeAdapter

    from langgraph_convcoa.state import ThreadState

    # The extras are metadata of `Annotated`. One of them selects the type of a message.
    return {name: TypeAdapter(hint) for name, hint in get_type_hints(ThreadState, include_extras=True).items()}


def thread_as_file(thread: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a thread's state as an object for JSON. Fields that an unfinished turn left there are not exported."""
    state = {
        name: adapter.dump_python(values[name], mode="json", warnings=False)
        for name, adapter in lasting_fields().items()
        if name in values
    }
    exported = datetime.now(UTC).isoformat(timespec="seconds")
    return {"kind": KIND, "format": FORMAT, "thread": thread, "exported": exported, "state": state}


def file_as_values(data: Any) -> dict[str, Any]:
    """The state that a file's object holds, for `graph.update_state(config, values, as_node="remember")`.

    The JSON of a contextual knowledge set alone is also accepted. Its rounds become the messages.
    """
    from langgraph_convcoa.memory.knowledge_set import ROOT, ContextualKnowledgeSet

    data = clean_value(data)
    if isinstance(data, dict) and ROOT in data:
        return _from_knowledge_set(data)
    if not isinstance(data, dict) or data.get("kind") != KIND or not isinstance(data.get("state"), dict):
        raise InputError("this is no exported thread: give a file that `convcoa threads export` wrote")
    if not isinstance(data.get("format"), int) or data["format"] > FORMAT:
        raise InputError(later_format("the thread", data.get("format")))
    values: dict[str, Any] = {}
    for name, adapter in lasting_fields().items():
        if name in data["state"]:
            try:
                values[name] = adapter.validate_python(data["state"][name])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"the exported thread is damaged in {name!r}: export it again") from error
    ContextualKnowledgeSet.load(values.get("knowledge_set"))
    return _kept(values)


def _from_knowledge_set(data: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

    adapters = lasting_fields()
    knowledge = ContextualKnowledgeSet.load(data)
    try:
        exported = adapters["knowledge_set"].validate_python(knowledge.export())
    except ValidationError as error:
        wrong = error.errors()[0]["loc"][-1]
        raise InputError(f"the contextual knowledge set is damaged: a round's {wrong!r} is missing or wrong") from error
    turns = list[dict[str, Any]]()
    for number, entry in enumerate(knowledge.rounds, start=1):
        turns.append({"type": "human", "content": entry["original_question"], "id": f"round-{number}-question"})
        turns.append({"type": "ai", "content": entry["answer"], "id": f"round-{number}-answer"})
    return _kept({"knowledge_set": exported, "messages": adapters["messages"].validate_python(turns)})


def _kept(values: dict[str, Any]) -> dict[str, Any]:
    """Check that a store can hold the values: no number beyond 64 bits, no nesting that is too deep."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    try:
        JsonPlusSerializer().dumps_typed(values)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError("the exported thread holds a number or text that no store can hold: export it again") from error
    return values


def read_thread_file(path: Path) -> Any:
    """Read the JSON of an exported thread, for `file_as_values`, which checks it."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({error.strerror}): give another file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no exported thread: give a file that `convcoa threads export` wrote") from error


def write_thread_file(data: Mapping[str, Any], path: Path) -> None:
    """Write an exported thread: as Markdown if the file's name ends in .md, otherwise as JSON."""
    text = thread_as_markdown(data) if path.suffix == ".md" else json_text(data, indent=2) + "\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} is there already: give another file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): give another file") from error


def file_name(thread: str) -> str:
    """The name of the file for a thread. No name of a thread can lead to another folder.

    Example:
        >>> file_name("../../etc/passwd")
        'etc-passwd.json'
    """
    plain = re.sub(r"[^\w.-]+", "-", thread).strip(".-")
    return f"{plain or 'thread'}.json"


def thread_as_markdown(data: Mapping[str, Any]) -> str:
    """An exported thread for reading: questions as headings, answers, and their citations."""
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, told_question

    knowledge = ContextualKnowledgeSet.load(data["state"].get("knowledge_set"))
    parts = [f"# {flat(str(data['thread']))}"]
    for entry in knowledge.rounds:
        parts += [f"## {flat(told_question(entry))}", entry["answer"].strip()]
        extra: Mapping[str, Any] = entry.get("convcoa") or {}
        cited = [(c.get("source") or c.get("id") or "", c.get("quote") or "") for c in extra.get("citations") or ()]
        lines = [flat(f"- [{n}] {source}: {quote}") for n, (source, quote) in enumerate(cited, start=1)]
        parts += ["\n".join(lines)] if lines else []
        parts += [f"Rated: {flat(str(extra['rating']))}"] if extra.get("rating") else []
    return printable("\n\n".join(parts)) + "\n"
