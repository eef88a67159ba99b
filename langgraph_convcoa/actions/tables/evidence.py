"""The result of a query as evidence: what was asked of which source, and the rows as a small table."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.actions.tables.engine import Result

QUOTED_ROWS = 5
"""Rows that stand in the quote, beside the query; the others are in the table only."""
_SENTENCES = 20
_LONGEST_CELL = 200
_LONGEST_TEXT = 8_000
_LONGEST_QUOTE = 1_500


def evidence_from(result: Result, query: str, source: str, action: str, *, words: str = "", look_up: bool = False) -> Document:
    """A result as one document; its quote is the query and the first rows.

    The text begins with the quote, so that a figure stands where the question's words do, and ends with the rows as a table.
    For a look-up, whose answer is copied from the text, it is the rows as sentences. `words` says what the query reckons.

    Example:
        >>> found = evidence_from(Result(("n",), ((3,),), False), "SELECT COUNT(*) AS n FROM sales", "sales.csv", "tables")
        >>> print(found.page_content)
        SELECT COUNT(*) AS n FROM sales gives n 3
        <BLANKLINE>
        | n |
        | --- |
        | 3 |
    """
    query = " ".join(query.split())
    quote = f"{query} gives {_spoken(result)}"[:_LONGEST_QUOTE] + (f" ({words[:_LONGEST_CELL]})" if words else "")
    lines, cut = _sentences(result) if look_up else _table(result)
    note = f"\n(the first {cut} rows; there are more)" if cut < len(result.rows) or result.more else ""
    table = "\n".join(lines)
    id_ = f"{action}:{hashlib.sha256(f'{source} {query}'.encode('utf-8', 'replace')).hexdigest()[:12]}"
    metadata = {"source": source, "score": 1.0, "quote": quote, "query": query, "rows": len(result.rows)}
    return Document(f"{table}{note}" if look_up else f"{quote}\n\n{table}{note}", id=id_, metadata=metadata)


def shown(value: Any) -> str:
    """A cell as text: floats without the noise of their last digits, nothing as "none", one line.

    Example:
        >>> shown(0.1 + 0.2), shown(1234567.0), shown(100 / 3), shown(0.000012345678), shown(None)
        ('0.3', '1234567', '33.3333', '1.235e-05', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:.4f}".rstrip("0").rstrip(".") if abs(value) >= 0.01 else f"{value:.4g}"
        return "0" if text == "-0" else text
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    text = " ".join(str(value)[: 4 * _LONGEST_CELL].split())
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


def _spoken(result: Result) -> str:
    if not result.rows:
        return "no rows"
    rows = [_spoken_row(result.columns, row) for row in result.rows[:QUOTED_ROWS]]
    more = len(result.rows) > QUOTED_ROWS or result.more
    return "; ".join(rows) + ("; and further rows" if more else "")


def _spoken_row(columns: Sequence[str], row: Sequence[Any]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in zip(columns, row, strict=True))


def _sentences(result: Result) -> tuple[list[str], int]:
    rows = result.rows[:_SENTENCES]
    return [f"{_spoken_row(result.columns, row)}." for row in rows] or ["There is no such row."], len(rows)


def _table(result: Result) -> tuple[list[str], int]:
    """The lines of a Markdown table, and how many rows fit."""
    lines = [_row(result.columns), _row(["---"] * len(result.columns))]
    size = sum(map(len, lines))
    for number, row in enumerate(result.rows):
        line = _row([shown(value) for value in row])
        size += len(line) + 1
        if size > _LONGEST_TEXT:
            return lines, number
        lines.append(line)
    return lines, len(result.rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
