"""What a query reckons, in the words that people ask for it with: SQL has DESC LIMIT 1 where a question has "highest"."""

from __future__ import annotations

from sqlglot import exp

_AGGREGATES = {
    "Sum": "total",
    "Avg": "average",
    "Count": "number of",
    "Max": "highest",
    "Min": "lowest",
    "Median": "median",
    "Stddev": "standard deviation of",
    "Variance": "variance of",
}


def in_words(query: exp.Expr) -> str:
    """The aggregates of a query, and what it puts first, in words; nothing for a plain list.

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
        found[f"{'highest' if first.args.get('desc') else 'lowest'} {_spoken(what)}".strip()] = None
    for node in query.dfs():
        if type(node).__name__ in _AGGREGATES and id(node) not in ordered:
            found[_spoken(node)] = None
    return ", ".join(found)


def _meant(node: exp.Expr, query: exp.Expr, named: dict[str, exp.Expr]) -> exp.Expr:
    """What ORDER BY total, or ORDER BY 2, stands for."""
    if isinstance(node, exp.Literal) and str(node.this).isdigit():
        position = int(str(node.this)) - 1
        if 0 <= position < len(query.selects):
            return query.selects[position].unalias()
    if isinstance(node, exp.Column) and not node.table:
        return named.get(node.name.casefold(), node)
    return node


def _spoken(node: exp.Expr) -> str:
    word = _AGGREGATES.get(type(node).__name__)
    if word is None:
        columns = list(dict.fromkeys(column.name for column in node.find_all(exp.Column)))
        inner = next((part for part in node.walk() if type(part).__name__ in _AGGREGATES), None)
        return _spoken(inner) if inner is not None else " ".join(columns)
    columns = list(dict.fromkeys(column.name for column in node.find_all(exp.Column)))
    return f"{word} {' '.join(columns) or 'rows'}"
