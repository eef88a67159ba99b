"""Approval at the terminal: what a turn wants to do is shown, and a person approves, edits or rejects it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.terminal import printable

_QUESTION = "[a]pprove, [e]dit or [r]eject? "


def ask_decisions(request: Mapping[str, Any], console: Console) -> dict[str, Any]:
    """The decisions about a human-in-the-loop request, to resume its turn with.

    Raises:
        InputError: Standard input ended before all was decided; the turn still waits.
    """
    requests: Sequence[Mapping[str, Any]] = request["action_requests"]
    try:
        return {"decisions": [_decision(one, console) for one in requests]}
    except EOFError:
        console.print()
        raise InputError("nothing was decided, and the turn waits: ask the same question again to decide") from None


def _decision(request: Mapping[str, Any], console: Console) -> dict[str, Any]:
    name, args = str(request["name"]), dict(request["args"])
    console.print(Text(f"\n{printable(name)}", style="cyan").append(" waits for approval", style="yellow"))
    for key, value in args.items():
        if value:
            console.print(f"  {key}: {printable(_shown(value))}")
    while True:
        answer = console.input(_QUESTION, markup=False).strip().lower()
        if answer in ("a", "approve", "y", "yes"):
            return {"type": "approve"}
        if answer in ("r", "reject", "n", "no"):
            message = console.input("  why (may stay empty): ", markup=False).strip()
            return {"type": "reject", "message": message}
        if answer in ("e", "edit"):
            asked = "  {} (empty: as it is): "
            edited = {key: console.input(asked.format(key), markup=False).strip() or value for key, value in args.items()}
            return {"type": "edit", "edited_action": {"name": name, "args": edited}}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    steps = [f"{number}. {step['action']}: {step['sub_question']}" for number, step in enumerate(value, start=1)]
    return "".join(f"\n    {step}" for step in steps)
