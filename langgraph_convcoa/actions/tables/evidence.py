"""The result of a query as evidence: the query, its rows as a small table, and what it computes, in words."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from langchain_core.documents import Document
from sqlglot import exp

from langgraph_convcoa.actions.tables.engine import Result

_QUOTED_ROWS = 5
_LONGEST_CELL = 200
_LONGEST_TEXT = 8_000
_LONGEST_QUOTE = 1_500
_AGGREGATES = {"Sum": "total", "Avg": "average", "Count": "number of", "Max": "highest", "Min": "lowest", "Median": "median"}
_AGGREGATES |= {"Stddev": "standard deviation of", "Variance": "variance of"}


def evidence_from(result: Result, query: str, source: str, action: str, *, words: str = "") -> Document:
    """A result as one document. Its quote is the query, the first rows, and `words`: what the query computes, in words.

    The text is the quote and the rows as a table.

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
    first = result.rows[: _QUOTED_ROWS + 1]
    spoken = [", ".join(f"{n} {shown(value)}" for n, value in zip(result.columns, row, strict=True)) for row in first]
    more = ["and further rows"] if len(spoken) > _QUOTED_ROWS or result.more else []
    given = "; ".join([*spoken[:_QUOTED_ROWS], *more]) if spoken else "no rows"
    quote = f"{query} gives {given}"[:_LONGEST_QUOTE] + (f" ({words[:_LONGEST_CELL]})" if words else "")
    lines, cut = _table(result)
    note = f"\n(the first {cut} rows; there are more)" if cut < len(result.rows) or result.more else ""
    table = "\n".join(lines)
    id_ = f"{action}:{hashlib.sha256(f'{source} {query}'.encode('utf-8', 'replace')).hexdigest()[:12]}"
    metadata = {"source": source, "score": 1.0, "quote": quote, "query": query, "rows": len(result.rows)}
    return Document(f"{quote}\n\n{table}{note}", id=id_, metadata=metadata)


def shown(value: Any) -> str:
    """A cell as text on one line: floats are rounded, None is "none".

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


def _table(result: Result) -> tuple[list[str], int]:
    """The lines of a Markdown table, and the number of rows that fit."""
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


def in_words(query: exp.Expr) -> str:
    """The aggregates of a query, and the order of its first row, in words; "" for a plain list.

    Example:
        >>> import sqlglot
        >>> in_words(sqlglot.parse_one("SELECT region FROM sales GROUP BY region ORDER BY SUM(revenue) DESC LIMIT 1"))
        'highest total revenue'
        >>> in_words(sqlglot.parse_one("SELECT COUNT(*) AS n, AVG(revenue) FROM sales"))
        'number of rows, average revenue'
    """
    found: dict[str, None] = {}
    named = {alias.alias.casefold(): alias.this for alias in query.find_all(exp.Alias)}
    order, limited = query.args.get("order"), query.args.get("limit") is not None
    ordered: set[int] = set()
    if order is not None and limited and order.expressions:
        first = order.expressions[0]
        what = _meant(first.this, query, named)
        ordered = {id(node) for node in [*what.walk(), *first.walk()]}
        found[f"{'highest' if first.args.get('desc') else 'lowest'} {_named(what)}".strip()] = None
    for node in query.dfs():
        if type(node).__name__ in _AGGREGATES and id(node) not in ordered:
            found[_named(node)] = None
    return ", ".join(found)


def _meant(node: exp.Expr, query: exp.Expr, named: dict[str, exp.Expr]) -> exp.Expr:
    """The expression that ORDER BY total, or ORDER BY 2, refers to."""
    if isinstance(node, exp.Literal) and str(node.this).isdigit():
        position = int(str(node.this)) - 1
        if 0 <= position < len(query.selects):
            return query.selects[position].unalias()
    if isinstance(node, exp.Column) and not node.table:
        return named.get(node.name.casefold(), node)
    return node


def _named(node: exp.Expr) -> str:
    word = _AGGREGATES.get(type(node).__name__)
    columns = dict.fromkeys(column.name for column in node.find_all(exp.Column))
    if word is None:
        inner = next((part for part in node.walk() if type(part).__name__ in _AGGREGATES), None)
        return _named(inner) if inner is not None else " ".join(columns)
    return f"{word} {' '.join(columns) or 'rows'}"
