"""The result of a query as evidence: the query, its rows as a small table, and in words what it computes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from langchain_core.documents import Document
from sqlglot import exp

from langgraph_convcoa.actions.tables.engine import Result

_QUOTED_ROWS = 5
_LONGEST_WORDS = 200
_LONGEST_QUOTE = 1_500
_AGGREGATES = {"Sum": "total", "Avg": "average", "Count": "number of", "Max": "highest", "Min": "lowest", "Median": "median"}
_AGGREGATES |= {"Stddev": "standard deviation of", "Variance": "variance of"}


def evidence_from(result: Result, query: str, source: str, action: str, *, words: str = "") -> Document:
    """A result as one document. Its quote is the query, the first rows, and `words`, which say what the query computes.

    The text is the quote and the rows as a table.
    """
    query = " ".join(query.split())
    spoken = [", ".join(map(" ".join, zip(result.columns, row, strict=True))) for row in result.rows[:_QUOTED_ROWS]]
    if result.more or len(result.rows) > _QUOTED_ROWS:
        spoken.append("and further rows")
    quote = f"{query} gives {'; '.join(spoken) or 'no rows'}"[:_LONGEST_QUOTE]
    quote += f" ({words[:_LONGEST_WORDS]})" if words else ""
    table = "\n".join(map(_row, (result.columns, ["---"] * len(result.columns), *result.rows)))
    note = f"\n(the first {len(result.rows)} rows; there are more)" if result.more else ""
    id_ = f"{action}:{hashlib.sha256(f'{source} {query}'.encode('utf-8', 'replace')).hexdigest()[:12]}"
    metadata = {"source": source, "score": 1.0, "quote": quote, "query": query, "rows": len(result.rows)}
    return Document(f"{quote}\n\n{table}{note}", id=id_, metadata=metadata)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def in_words(query: exp.Expr) -> str:
    """Describe in words the aggregates of a query and what its order puts first; "" for a plain list.

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
