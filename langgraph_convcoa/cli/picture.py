"""A turn as a picture: the question, each sub-question with its status, score and evidence, the answer; SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from langgraph_convcoa.cli.console import SafeConsole, citation_line, show_why, usage_line
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.terminal import printable

_WIDTH, _LONGEST = 108, 1_500
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Finds a font that a viewer would fetch."""


def check_place(path: Path) -> None:
    """Raise InputError if no picture can be written there, before a turn is spent on it."""
    if path.suffix.lower() != ".svg":
        raise InputError(f"the picture of a turn is SVG: give a name that ends in .svg, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"the picture cannot be written: there is no folder {path.parent}")


def save_turn(question: str, output: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a turn. Raises InputError if it cannot be written."""
    try:
        path.write_text(turn_svg(question, output), encoding="utf-8")
    except OSError as error:
        raise InputError(f"the picture cannot be written to {path} ({error.strerror}): name another place") from error


def turn_svg(question: str, output: Mapping[str, Any]) -> str:
    """The picture of a turn, from the graph's output. All texts are plain text in the picture, and it has no links.

    Example:
        >>> item = {"sub_question": "When?", "action": "wiki", "status": "kept", "score": 0.9, "guess_answer": "In <1982>."}
        >>> "In&#160;&lt;1982&gt;." in turn_svg("When?", {"chain": [item], "answer": "In <1982>."})
        True
    """
    console = SafeConsole(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, emoji=False)
    rounds = (output.get("knowledge_set") or {}).get("Contextual knowledge set") or [{}]
    understood = str(rounds[-1].get("optimized_question") or "").strip()
    console.print(Text(_short(question), style="bold"))
    if understood not in ("", question.strip()):
        console.print(Text(f"understood as: {_short(understood)}", style="dim"))
    show_why(console, output)
    console.print(Text(f"\n{_short(str(output.get('answer') or ''))}"))
    for number, citation in enumerate(output.get("citations") or (), start=1):
        console.print(Text(citation_line(number, citation), style="dim"))
    if usage := output.get("usage"):
        console.print(Text(usage_line(usage), style="dim"))
    # XML does not allow these two characters.
    return re.sub("[\ufffe\uffff]", "", _FONT.sub("", console.export_svg(title="convcoa")))


def _short(text: str) -> str:
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")
