"""What a query may contain: an allow-list of its parts, by sqlglot's classes, and the columns of the given tables."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files

from sqlglot import exp

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Table

_LISTS = tomllib.loads(files(__package__).joinpath("sql_allowed.toml").read_text(encoding="utf-8"))
_KINDS = ("clauses", "functions", "not_in_postgres", "types", "words")
_CLAUSES, _FUNCTIONS, _NOT_IN_POSTGRES, _TYPES, _WORDS = (frozenset(_LISTS[kind].split()) for kind in _KINDS)
# Built-in functions of each database that have no class in sqlglot. Any other name may be a user's function.
_OTHER_FUNCTIONS = {
    "postgres": frozenset({"age", "date", "date_part"}),
    "duckdb": frozenset({"age", "date", "date_part", "ifnull", "mean", "prefix", "suffix", "time"}),
    "sqlite": frozenset({"date", "datetime", "ifnull", "julianday", "total", "unixepoch", "time"}),
}
_DATE_FUNCTIONS = frozenset({"date", "datetime", "ifnull", "time"})
_PLAIN = re.compile(r"[A-Za-z_]\w{0,30}(?: [A-Za-z_]\w{0,30}){0,3}", re.ASCII)
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_KEY = re.compile(r"[\w -]{1,100}")
_LONGEST_TYPE = 10_000
_HIDDEN = frozenset("ctid xmin xmax cmin cmax tableoid oid rowid _rowid_ rownum ora_rowscn".split())  # noqa: SIM905
"""Columns that every table of a database has. They may be used only if a given table lists them."""
_OF_VALUES = re.compile(r"col(?:umn)?\d+")  # Names of the columns of VALUES.
_MOST_GROWTH = 10_000


def check_node(node: exp.Expr, dialect: str) -> None:
    """Refuse a node whose class, function, type or word is not listed here."""
    kind = type(node).__name__
    if isinstance(node, exp.Anonymous):
        if str(node.this).lower() not in _OTHER_FUNCTIONS.get(dialect, _DATE_FUNCTIONS):
            raise ActionInputError(f"the function {str(node.this)[:60].lower()} is not allowed")
    elif isinstance(node, exp.Func):
        if kind not in _FUNCTIONS or (dialect == "postgres" and kind in _NOT_IN_POSTGRES):
            raise ActionInputError(f"the function {node.sql_names()[0].lower()} is not allowed")
    elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        raise ActionInputError(f"a function is called by its bare name, not {node.sql(dialect)[:60]}")
    elif isinstance(node, exp.Dot) and (dialect != "duckdb" or not isinstance(node.expression, exp.Identifier)):
        # In PostgreSQL, (row).name calls the function of that name.
        raise ActionInputError(f"a part of a value cannot be read with a dot: {node.sql(dialect)[:60]}")
    elif kind not in _CLAUSES:
        raise ActionInputError(f"{kind.upper()} is not allowed in a query")
    elif isinstance(node, exp.DataType) and node.this.name not in _TYPES:
        raise ActionInputError(f"the type {node.sql(dialect)[:60]} is not allowed")
    elif isinstance(node, exp.DataTypeParam) and not (node.name.isdigit() and int(node.name[:9]) <= _LONGEST_TYPE):
        raise ActionInputError(f"the length of a type must be a number up to {_LONGEST_TYPE}")
    elif isinstance(node, exp.Var) and str(node.this).upper() not in _WORDS:
        raise ActionInputError(f"{str(node.this)[:60]!r} is no unit or part of a date")
    _check_texts(node)


def _check_texts(node: exp.Expr) -> None:
    """Check that texts written without quotes are plain words or numbers."""
    if isinstance(node, exp.Identifier) or (isinstance(node, exp.Literal) and node.is_string):
        return
    for key, value in node.args.items():
        for text in value if type(value) is list else (value,):
            if type(text) is str and text:
                form = _NUMBER if isinstance(node, exp.Literal) else _KEY if isinstance(node, exp.JSONPathKey) else _PLAIN
                if form.fullmatch(text) is None:
                    where = f"{type(node).__name__} {key.strip('_')}"
                    raise ActionInputError(f"{text[:60]!r} cannot stand there in a query ({where})")


def check_columns(root: exp.Expr, table_of: Callable[[exp.Table], Table | None], dialect: str, *, exact: bool) -> None:
    """Refuse unknown and hidden columns with an ActionInputError.

    PostgreSQL reads `table.name` also as a call of the function `name`. So the name of a given table may only be followed by
    its own columns, even if another part of the query uses that name. `table_of` gives the table of a node, None for a CTE;
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
        # In DuckDB, a name may be a field of a column.
        known = known or (dialect == "duckdb" and any(part in real or part in made for part in parts[:-1]))
        if not isinstance(column.this, exp.Star) and not (known and all(name in columns for columns in own)):
            raise _unknown(".".join(part.name for part in column.parts), real)


def check_growth(root: exp.Query) -> None:
    """Refuse a query whose subqueries multiply: PostgreSQL's planner copies them into each other, without limits.

    Each SELECT has a factor: the number of uses of its most used CTE or alias. The product of all factors is bounded.
    """
    made = {str(alias.alias) for alias in root.find_all(exp.Alias, exp.CTE)}
    growth = 1
    for select in root.find_all(exp.Select):
        children = select.iter_expressions()
        inside = (part for child in children for part in child.walk(prune=lambda node: isinstance(node, exp.Query)))
        used = Counter(node.name for node in inside if isinstance(node, exp.Column | exp.Table) and node.name in made)
        growth *= max([1, *used.values()])
    if growth > _MOST_GROWTH:
        raise ActionInputError("the query multiplies its parts too often: use the names of CTEs and subqueries fewer times")


def _renamed(node: exp.Expr) -> Iterator[str]:
    """The column names that an alias gives: `AS t(a, b)`."""
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias):
        yield from (column.name for column in alias.columns)


def _unknown(name: str, real: Iterable[str]) -> ActionInputError:
    return ActionInputError(f"there is no column {name[-60:]!r}: the columns are {', '.join(real)[:800]}")
