"""What the trace of a node says of its sub-questions: their status and the ids of their evidence.

The facts are metadata of the node's run in LangSmith, and in OpenTelemetry through its SDK, so that runs can be filtered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.types import Command
from langsmith.run_helpers import get_current_run_tree

_LONGEST = 300


def annotate(given: Mapping[str, Any], update: Any) -> Any:
    """Write the facts of a node into the run that traces it, where there is one; returns the update as it is.

    Words are left out where the inputs of the trace are hidden.
    """
    changed = update.update if isinstance(update, Command) else update
    if (run := get_current_run_tree()) is None or not isinstance(changed, Mapping):
        return update
    told = facts(given, changed)
    if getattr(run.client, "_hide_inputs", False):
        told = {name: value for name, value in told.items() if not name.endswith("sub_question")}
    run.add_metadata(told)
    return update


def facts(given: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, str | float | list[str]]:
    """What a node was given and what it changed, in flat names.

    Example:
        >>> item = {"sub_question": "When?", "action": "wiki", "status": "kept", "score": 0.9, "evidence": ["a#1"]}
        >>> told = facts({}, {"items": [item]})
        >>> told["convcoa.1.sub_question"], told["convcoa.1.status"], told["convcoa.1.evidence"]
        ('When?', 'kept', ['a#1'])
    """
    told: dict[str, str | float | list[str]] = {}
    chain = update.get("items") or update.get("chain") or (update.get("plan") or {}).get("nodes") or ()
    for number, item in enumerate(chain, start=1):
        for name in ("sub_question", "action", "status", "score", "evidence"):
            if name in item:
                told[f"convcoa.{number}.{name}"] = _short(item[name])
    findings = update.get("findings") or ()
    # An `Overwrite` clears the field of the turn before.
    if not chain and (found := findings if isinstance(findings, list) else ()):
        told["convcoa.sub_question"] = _short(given.get("sub_question") or given.get("asked") or "")
        told["convcoa.action"] = ", ".join(dict.fromkeys(str(one["action"]) for one in found if "action" in one))
        told["convcoa.status"] = "found" if any(not one["error"] for one in found) else "failed"
        told["convcoa.evidence"] = [_short(str(document.id)) for one in found for document in one["documents"]]
    return told


def _short(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else value
