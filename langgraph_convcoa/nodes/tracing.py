"""The facts of a node in its trace: the status of its sub-questions and the ids of their evidence.

They are metadata of the node's run in LangSmith, and in OpenTelemetry through its SDK, so that runs can be filtered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.types import Command
from langsmith.run_helpers import get_current_run_tree

_LONGEST = 300


def annotate(given: Mapping[str, Any], update: Any) -> Any:
    """Add the facts of a node to its trace, if there is one; returns the update.

    If the client hides inputs, the sub-questions are left out.
    """
    changed = update.update if isinstance(update, Command) else update
    run = get_current_run_tree()
    if run is not None and isinstance(changed, Mapping):
        hidden = getattr(run.client, "_hide_inputs", False)
        named = facts(given, changed)
        run.add_metadata({name: fact for name, fact in named.items() if not (hidden and name.endswith("sub_question"))})
    return update


def facts(given: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, str | float | list[str]]:
    """The facts of a node, from its input and its update, under flat names such as `convcoa.1.status`."""
    named: dict[str, str | float | list[str]] = {}
    chain = update.get("items") or update.get("chain") or (update.get("plan") or {}).get("nodes") or ()
    for number, item in enumerate(chain, start=1):
        for name in ("sub_question", "action", "status", "score", "evidence"):
            if name in item:
                named[f"convcoa.{number}.{name}"] = _short(item[name])
    findings = update.get("findings")
    # `remember` and `recall` write an `Overwrite`, which is no list.
    if not chain and isinstance(findings, list) and findings:
        named["convcoa.sub_question"] = _short(given.get("sub_question") or given.get("asked") or "")
        named["convcoa.action"] = ", ".join(dict.fromkeys(one["action"] for one in findings))
        named["convcoa.status"] = "found" if any(not one["error"] for one in findings) else "failed"
        named["convcoa.evidence"] = [_short(str(document.id)) for one in findings for document in one["documents"]]
    return named


def _short(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else value
