"""Check of the columns of a query: they must be columns of the given tables, or names that the query itself gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from sqlglot import exp

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Table

_HIDDEN = frozenset("ctid xmin xmax cmin cmax tableoid oid rowid _rowid_ rownum ora_rowscn".split())  # noqa: SIM905
"""Columns that every table of a database has. They may be used only if a given table lists them."""
_OF_VALUES = re.compile(r"col(?:umn)?\d+")
"""Names of the columns of VALUES."""
_MOST_GROWTH = 10_000


def check_columns(root: exp.Expr, table_of: Callable[[exp.Table], Table | None], dialect: str, *, exact: bool) -> None:
    """Refuse unknown and hidden columns with an ActionInputError.

    PostgreSQL reads `table.name` also as a call of the function `name`. So the name of a given table may only be followed by
    its own columns, even where another part of the query uses that name. `table_of` gives the table of a node, None for a CTE;
    `exact` compares names as written.
    """

    def name_of(text: str) -> str:
        return text if exact else text.casefold()

    real: dict[str, None] = {}
    given: dict[str, list[set[str]]] = {}
    for node in root.find_all(exp.Table):
        if (table := table_of(node)) is not None:
            columns = dict.fromkeys(name_of(column.name) for column in table.columns)
            real |= columns
            given.setdefault(name_of(node.alias or node.name), []).append({*columns, *map(name_of, _renamed(node))})
    for select in root.find_all(exp.Select):
        joined = [join.this for join in select.args.get("joins") or ()]
        beginning = select.args.get("from_") or select.args.get("from")
        sources = [source for source in [beginning and beginning.this, *joined] if isinstance(source, exp.Table)]
        names = Counter(name_of(source.alias or source.name) for source in sources)
        if twice := next((name for name, count in names.items() if count > 1), None):
            raise ActionInputError(f"two tables of one FROM are called {twice!r}: give each an alias of its own")
    made = {name_of(node.alias) for node in root.find_all(exp.Alias)}
    made |= {name_of(name) for node in root.walk() for name in _renamed(node)}
    hidden = _HIDDEN - {name.casefold() for name in real}
    for identifier in root.find_all(exp.Identifier):
        if str(identifier.this).casefold() in hidden:
            raise _unknown(str(identifier.this), real)
    has_values = root.find(exp.Values) is not None
    for column in root.find_all(exp.Column):
        parts = [name_of(part.name) for part in column.parts]
        own = [columns for part in parts[:-1] for columns in given.get(part, ())]
        name = parts[1] if dialect == "duckdb" and len(parts) > 1 and parts[0] in given else parts[-1]
        known = name in real or name in made or (has_values and _OF_VALUES.fullmatch(name) is not None)
        # In DuckDB a name may be a field of a column.
        known = known or (dialect == "duckdb" and any(part in real or part in made for part in parts[:-1]))
        if not isinstance(column.this, exp.Star) and not (known and all(name in columns for columns in own)):
            raise _unknown(".".join(part.name for part in column.parts), real)


def check_growth(root: exp.Query) -> None:
    """Refuse a query whose subqueries multiply: PostgreSQL's planner copies them into each other, without limits.

    The bound limits the product, over all SELECTs, of how often each SELECT uses its most frequent name.
    """
    made = {str(alias.alias) for alias in root.find_all(exp.Alias, exp.CTE)}
    growth = 1
    for select in root.find_all(exp.Select):
        inside = (part for child in select.iter_expressions() for part in child.walk(prune=_is_query))
        used = Counter(node.name for node in inside if isinstance(node, exp.Column | exp.Table) and node.name in made)
        growth *= max([1, *used.values()])
    if growth > _MOST_GROWTH:
        raise ActionInputError("the query multiplies its parts too often: use the names of CTEs and subqueries fewer times")


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


def _renamed(node: exp.Expr) -> Iterator[str]:
    """The column names that an alias gives: `AS t(a, b)`."""
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias):
        yield from (column.name for column in alias.columns)


def _unknown(name: str, real: Iterable[str]) -> ActionInputError:
    return ActionInputError(f"there is no column {name[-60:]!r}: the columns are {', '.join(real)[:800]}")
