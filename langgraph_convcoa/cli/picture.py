"""A turn as a picture: the question, each sub-question with its status, score and evidence, the answer; plain SVG."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from langgraph_convcoa.cli.console import usage_line
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.terminal import printable

_WIDTH, _MARGIN, _LEFT, _PADDING, _GAP = 900, 24, 64, 14, 18
_INK, _QUIET, _LINE, _PAPER = "#1f2933", "#5b6875", "#c3ccd6", "#ffffff"
_COLOURS = {
    **dict.fromkeys(("kept", "recalled"), ("#1f7a4d", "#eaf6ef")),
    **dict.fromkeys(("confirmed", "corrected", "filled", "partial"), ("#8a5a00", "#fdf4e3")),
    **dict.fromkeys(("unsupported", "failed"), ("#b42318", "#fdecea")),
}
_PLAIN = ("#2b5ca8", "#eef3fb")
_LONGEST, _MOST_EVIDENCE = 1_500, 8
_SIZE, _SMALL = 15, 13
# Widths in a wide font without serifs, as shares of its size: of a letter, a capital, and a letter of East Asia.
_LETTER, _CAPITAL, _WIDE = 0.57, 0.75, 1.05

Row = tuple[str, int, str, bool]
"""A line of a card: text, size, colour, bold."""


def check_place(path: Path) -> None:
    """Raise InputError where no picture can be written there, before a turn is spent on what it shows."""
    if path.suffix.lower() != ".svg":
        raise InputError(f"the picture of a turn is SVG: give a name that ends in .svg, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"the picture cannot be written: there is no folder {path.parent}")


def save_turn(question: str, output: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a turn.

    Raises:
        InputError: It cannot be written there.
    """
    try:
        path.write_text(turn_svg(question, output), encoding="utf-8")
    except OSError as error:
        raise InputError(f"the picture cannot be written to {path} ({error.strerror}): name another place") from error


def turn_svg(question: str, output: Mapping[str, Any]) -> str:
    """The picture of a turn, from the graph's output. Texts are text in it, whatever they hold, and nothing is a link.

    Example:
        >>> item = {"sub_question": "When?", "action": "wiki", "status": "kept", "score": 0.9, "guess_answer": "In <1982>."}
        >>> picture = turn_svg("When?", {"chain": [item], "answer": "In <1982>."})
        >>> "kept 0.90" in picture, "In &lt;1982&gt;." in picture
        (True, True)
    """
    citations: Sequence[Mapping[str, Any]] = output.get("citations") or ()
    cited = {str(citation["id"]): number for number, citation in enumerate(citations, start=1)}
    cards = [_question_card(question, output)]
    cards += [_step_card(number, item, cited) for number, item in enumerate(output.get("chain") or (), start=1)]
    cards.append(_answer_card(output, citations))
    heights = [_height(rows) for rows, _, _ in cards]
    total = 2 * _MARGIN + sum(heights) + _GAP * (len(cards) - 1)
    svg = ElementTree.Element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {_WIDTH} {total}", "width": str(_WIDTH), "role": "img"},
    )
    ElementTree.SubElement(svg, "title").text = _safe(f"How this question was answered: {question}")
    ElementTree.SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": _PAPER})
    top, spine = _MARGIN, _MARGIN + 16
    middles = []
    for (rows, colours, mark), height in zip(cards, heights, strict=True):
        _draw_card(svg, rows, colours, top, height)
        middles.append((top + height / 2, colours[0], mark))
        top += height + _GAP
    line = {"x1": str(spine), "x2": str(spine), "y1": _pt(middles[0][0]), "y2": _pt(middles[-1][0])}
    ElementTree.SubElement(svg, "line", {**line, "stroke": _LINE, "stroke-width": "2"})
    for middle, colour, mark in middles:
        circle = {"cx": str(spine), "cy": _pt(middle), "r": "14", "fill": _PAPER, "stroke": colour, "stroke-width": "2"}
        ElementTree.SubElement(svg, "circle", circle)
        _text(svg, mark, spine, middle + 5, _SIZE, colour, bold=True, anchor="middle")
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _question_card(question: str, output: Mapping[str, Any]) -> tuple[list[Row], tuple[str, str], str]:
    rounds = (output.get("knowledge_set") or {}).get("Contextual knowledge set") or [{}]
    understood = str(rounds[-1].get("optimized_question") or "")
    rows = _rows(question, _SIZE, _INK, bold=True)
    if understood and understood.strip() != question.strip():
        rows += _rows(f"understood as: {understood}", _SMALL, _QUIET)
    return rows, _PLAIN, "Q"


def _step_card(number: int, item: Mapping[str, Any], cited: Mapping[str, int]) -> tuple[list[Row], tuple[str, str], str]:
    status = str(item.get("status") or "")
    colours = _COLOURS.get(status, _PLAIN)
    score = "" if status == "failed" else f" {float(item.get('score') or 0.0):.2f}"
    rows = _rows(f"{status}{score}  ·  {item.get('action') or ''}", _SMALL, colours[0], bold=True)
    rows += _rows(str(item.get("sub_question") or ""), _SIZE, _INK)
    guess, answer = str(item.get("guess_answer") or ""), str(item.get("answer") or "")
    said = [("guess", guess if guess != answer else ""), ("answer", answer)]
    if status in ("unsupported", "failed"):
        said.append(("reason", str(item.get("reason") or "")))
    ids = [str(id_) for id_ in item.get("evidence") or ()]
    shown = [f"[{cited[id_]}] {id_}" if id_ in cited else id_ for id_ in ids[:_MOST_EVIDENCE]]
    more = f", and {len(ids) - _MOST_EVIDENCE} more" if len(ids) > _MOST_EVIDENCE else ""
    said.append(("evidence", ", ".join(shown) + more))
    said += [("path", " → ".join(map(str, path))) for path in (item.get("paths") or {}).values()]
    for name, text in said:
        rows += _rows(f"{name}: {text}", _SMALL, _QUIET) if text else []
    return rows, colours, str(number)


def _answer_card(output: Mapping[str, Any], citations: Sequence[Mapping[str, Any]]) -> tuple[list[Row], tuple[str, str], str]:
    rows = _rows(str(output.get("answer") or ""), _SIZE, _INK)
    for number, citation in enumerate(citations, start=1):
        rows += _rows(f"[{number}] {citation.get('source') or citation.get('id')}", _SMALL, _QUIET)
    if usage := output.get("usage"):
        rows += _rows(usage_line(usage), _SMALL, _QUIET)
    return rows, _PLAIN, "A"


def _rows(text: str, size: int, colour: str, bold: bool = False) -> list[Row]:
    """The text in lines that fit a card."""
    text = " ".join(_safe(text).split())
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} …"
    room = (_WIDTH - _LEFT - _MARGIN - 2 * _PADDING) / (size * (1.06 if bold else 1.0))
    lines, line, used = [], "", 0.0
    for word in text.split(" "):
        width = _ems(word)
        if line and used + _LETTER + width <= room:
            line, used = f"{line} {word}", used + _LETTER + width
            continue
        if line:
            lines.append(line)
        # A word that is wider than the card goes on in the next line.
        line, used = "", 0.0
        for letter in word:
            step = _ems(letter)
            if used + step > room:
                lines.append(line)
                line, used = "", 0.0
            line, used = line + letter, used + step
    return [(one, size, colour, bold) for one in [*lines, line] if one]


def _ems(text: str) -> float:
    return sum(map(_em, text))


def _em(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return _WIDE
    return _CAPITAL if letter.isupper() or letter in "@%mw" else _LETTER


def _safe(text: str) -> str:
    """Without characters that XML does not take, and those that change the direction of what follows."""
    return "".join(letter for letter in printable(text) if letter in "\n\t" or ord(letter) not in (0xFFFE, 0xFFFF))


def _height(rows: Sequence[Row]) -> int:
    return 2 * _PADDING + sum(_step(size) for _, size, _, _ in rows)


def _step(size: int) -> int:
    return round(size * 1.45)


def _draw_card(svg: ElementTree.Element, rows: Sequence[Row], colours: tuple[str, str], top: float, height: float) -> None:
    box = {"x": str(_LEFT), "y": _pt(top), "width": str(_WIDTH - _LEFT - _MARGIN), "height": _pt(height), "rx": "8"}
    ElementTree.SubElement(svg, "rect", {**box, "fill": colours[1], "stroke": colours[0], "stroke-opacity": "0.35"})
    bottom = top + _PADDING
    for text, size, colour, bold in rows:
        bottom += _step(size)
        _text(svg, text, _LEFT + _PADDING, bottom - 0.35 * size, size, colour, bold=bold)


def _text(
    svg: ElementTree.Element, text: str, x: float, y: float, size: int, colour: str, bold: bool = False, anchor: str = "start"
) -> None:
    style = {"font-family": "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif", "font-size": str(size), "fill": colour}
    weight = {"font-weight": "600"} if bold else {}
    place = {"x": _pt(x), "y": _pt(y), "text-anchor": anchor}
    ElementTree.SubElement(svg, "text", {**place, **style, **weight}).text = text


def _pt(value: float) -> str:
    return f"{value:.1f}"
