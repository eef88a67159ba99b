"""SQL guard: lets through only a single SELECT over the given tables, made of allow-listed parts.

The SQL that runs is not the given text: sqlglot writes it from the checked tree, with every name quoted. So nothing can hide
in a difference between the readings of sqlglot and of the database. Bounds on the tokens are checked before the parser
starts, because its time is exponential for some texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Table
from langgraph_convcoa.actions.tables.sql_allowed import check_columns, check_growth, check_node
from langgraph_convcoa.errors import first_line

_LONGEST_QUERY = 8_000
_FENCE = re.compile(r"\A\s*```\w*\s*\n?(.*?)```\s*\Z", re.DOTALL)
# Databases in which a quoted name may differ in case from the name as it was created.
_FOLDS_CASE = frozenset({"duckdb", "sqlite", "mysql", "tsql"})
_AGGREGATES = {"Sum": "total", "Avg": "average", "Count": "number of", "Max": "highest", "Min": "lowest", "Median": "median"}
_AGGREGATES |= {"Stddev": "standard deviation of", "Variance": "variance of"}
_OWN_PROCESS = frozenset({"duckdb", "sqlite"})
"""These databases run in a process that can be killed, so the growth of a query needs no bound."""
_FIRST_WORDS = ("SELECT", "WITH", "FROM", "(")
_MOST_TOKENS, _DEEPEST_BRACKETS, _DEEPEST_TREE = 6_000, 30, 200
_STEPS, _STEPS_OF_TOKEN = 2_000, 40
"""Maximum steps of the parser: a fixed number, and more for each token. Ordinary queries take three for a token."""
_DEEPEST_TYPES = 3
"""Deepest nesting of brackets after type names. Each level is parsed as a type and as a function, which doubles the time."""
_OPENING = frozenset({"L_PAREN", "L_BRACKET", "L_BRACE", "CASE"})
_CLOSING = frozenset({"R_PAREN", "R_BRACKET", "R_BRACE", "END"})
_LONGEST_PREFIX = 20
_PREFIXES = frozenset({"NOT", "DASH", "PLUS", "TILDE", "INTERVAL", "DATE", "TIME", "TIMESTAMP", "DISTINCT", "ARROW", "DCOLON"})
_TYPE_WORDS = frozenset({"ARRAY", "STRUCT", "ROW", "MAP", "LIST", "DEC", "OBJECT", "TIMESTAMP", "DATE", "DATETIME", "TIME"})


class CheckedQuery(NamedTuple):
    """A checked query: `shown` in citations, and `executed` with quoted names and a limit of rows. `words` say what its
    first rows are ("highest total revenue"; "" without ORDER BY or LIMIT). It reads the `tables`.
    """

    shown: str
    words: str
    executed: str
    tables: tuple[Table, ...]


def check_query(sql: str, dialect: str, tables: Sequence[Table], *, max_rows: int, default_schema: str = "") -> CheckedQuery:
    """Accept exactly one SELECT over the given tables, and limit it to `max_rows` rows.

    A Markdown fence around the query is removed. A query may write `default_schema` ("public") before a table that has no
    schema. The message of the ActionInputError says why a query is refused.
    """
    fence = _FENCE.match(sql)
    sql = (fence.group(1) if fence else sql).strip()
    if not sql:
        raise ActionInputError("there is no SQL: write one SELECT")
    if len(sql) > _LONGEST_QUERY:
        raise ActionInputError(f"the query has more than {_LONGEST_QUERY} characters: write a shorter one")
    try:
        return _checked(sql, dialect, tables, max_rows, default_schema)
    except RecursionError:
        raise _too_deep() from None


def _checked(sql: str, dialect: str, tables: Sequence[Table], max_rows: int, default_schema: str) -> CheckedQuery:
    # "sales" and "SALES" are two tables in PostgreSQL, so `names` has each name as created and in lower case.
    created = {table.full_name: table for table in tables}
    created |= {f"{default_schema}.{table.name}": table for table in tables if default_schema and not table.schema}
    names = {name.casefold(): table for name, table in created.items()} | created
    root = parse_select(sql, dialect)
    ctes = _ctes(root, names)
    used = _check_tree(root, dialect, names, ctes)
    shown, words = root.sql(dialect=dialect, comments=False), _first_in_words(root)
    _name_tables(root, dialect, names, ctes, default_schema)
    if dialect not in _FOLDS_CASE:
        _fold_case(root, tables)
    _limit(root, max_rows)
    executed = _written(root, dialect)
    # The SQL to run is parsed and checked again; the result must be the same.
    again = parse_select(executed, dialect)
    read = _check_tree(again, dialect, created, dict.fromkeys(ctes.values(), ""), exact=True)
    if read != used or _written(again, dialect) != executed:
        raise ActionInputError("the query can be read in two ways: write it more simply")
    return CheckedQuery(shown, words, executed, tuple(used.values()))


def _check_tree(
    root: exp.Query, dialect: str, names: Mapping[str, Table], ctes: Mapping[str, str], *, exact: bool = False
) -> dict[str, Table]:
    """Refuse parts that are not allowed. Returns the tables that the query reads."""
    used: dict[str, Table] = {}

    def table_of(node: exp.Table) -> Table | None:
        return _table(node, names, ctes, exact=exact)

    for node in root.walk():
        check_node(node, dialect)
        if isinstance(node, exp.Table) and (table := table_of(node)) is not None:
            used[table.full_name] = table
    if not used:
        raise ActionInputError(f"the query reads none of the tables: {_listed(names)}")
    check_columns(root, table_of, dialect, exact=exact and dialect not in _FOLDS_CASE)
    if dialect not in _OWN_PROCESS:
        check_growth(root)
    return used


def _written(root: exp.Expr, dialect: str) -> str:
    """Write a query as SQL with all names quoted. This may change `root`."""
    try:
        return str(root.sql(dialect=dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE, copy=False))
    except sqlglot.errors.UnsupportedError as error:
        raise ActionInputError(f"the query cannot be run: {first_line(error)}") from None


def _ctes(root: exp.Expr, names: Mapping[str, Table]) -> dict[str, str]:
    """New names for the CTEs, so that no CTE has the name of a table of the database."""
    found: dict[str, str] = {}
    for clause in root.find_all(exp.With):
        if clause.recursive:
            raise ActionInputError("WITH RECURSIVE is not allowed")
    for number, cte in enumerate(root.find_all(exp.CTE), 1):
        name = cte.alias.casefold()
        if name in names:
            raise ActionInputError(f"the CTE {cte.alias!r} has the name of a table: give it another name")
        if name in found:
            raise ActionInputError(f"two CTEs are called {cte.alias!r}: give each its own name")
        found[name] = f"convcoa_cte_{number}_{name}"
    return found


def _table(node: exp.Table, names: Mapping[str, Table], ctes: Mapping[str, str], *, exact: bool) -> Table | None:
    """The table that a node reads, or None for a CTE. Refuses other tables and table functions."""
    if not isinstance(node.this, exp.Identifier):
        raise ActionInputError(f"a table function is not allowed: read one of the tables {_listed(names)}")
    name = f"{node.db}.{node.name}" if node.db else node.name
    if not node.db and not node.catalog and name.casefold() in ctes:
        return None
    if node.catalog or (name if exact else name.casefold()) not in names:
        raise ActionInputError(f"there is no table {name[:60]!r}: the tables are {_listed(names)}")
    return (names.get(name) if node.this.quoted else None) or names[name.casefold()]


def _name_tables(
    root: exp.Expr, dialect: str, names: Mapping[str, Table], ctes: Mapping[str, str], default_schema: str
) -> None:
    """Write tables under the names with which they were created ("Sales" for sales), and CTEs under their new names."""
    for column in root.find_all(exp.Column):
        if column.args.get("db") is not None and dialect != "duckdb":
            # PostgreSQL may read schema.table.name as a call of a function.
            column.set("db", None)
            column.set("catalog", None)
    for node in list(root.find_all(exp.Table)):
        if (table := _table(node, names, ctes, exact=False)) is None:
            name = ctes[node.name.casefold()]
            if not node.alias:
                node.set("alias", exp.TableAlias(this=node.this.copy()))
            node.set("this", exp.to_identifier(name, quoted=True))
            continue
        node.this.replace(exp.to_identifier(table.name, quoted=True))
        if node.db:
            node.args["db"].replace(exp.to_identifier(table.schema or default_schema, quoted=True))
    for cte in root.find_all(exp.CTE):
        cte.args["alias"].set("this", exp.to_identifier(ctes[cte.alias.casefold()], quoted=True))


def _listed(names: Mapping[str, Table]) -> str:
    return ", ".join(dict.fromkeys(table.full_name for table in names.values()))[:500]


def _fold_case(root: exp.Expr, tables: Sequence[Table]) -> None:
    """Write unquoted names as they were created: a model writes Region for "region"."""
    exact = [name for table in tables for name in (table.schema, table.name, *(column.name for column in table.columns))]
    folded = {name.casefold(): name for name in reversed(exact)} | {name: name for name in exact if name == name.casefold()}
    for identifier in root.find_all(exp.Identifier):
        if not identifier.quoted:
            name = str(identifier.this).casefold()
            identifier.set("this", folded.get(name, name))


def _limit(root: exp.Expr, rows: int) -> None:
    given = root.args.get("limit")
    if given is not None:
        count = given.args.get("count") if isinstance(given, exp.Fetch) else given.expression
        if not isinstance(count, exp.Literal) or not str(count.this).isdigit():
            raise ActionInputError("LIMIT must be a whole number")
        rows = min(rows, int(count.this))
    root.set("limit", exp.Limit(expression=exp.Literal.number(rows)))


def parse_select(sql: str, dialect: str) -> exp.Query:
    """The parse of exactly one SELECT. Raises ActionInputError for anything else."""
    if "\x00" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise ActionInputError("the query has characters that no database takes: write it as plain text")
    try:
        reader = sqlglot.Dialect.get_or_raise(dialect)
        tokens = reader.tokenize(sql)
        kinds = [token.token_type.name for token in tokens]
        while kinds and kinds[-1] == "SEMICOLON":
            kinds.pop()
        if "SEMICOLON" in kinds:
            raise ActionInputError("only one statement is run: write one SELECT, without a semicolon inside")
        if not tokens or tokens[0].text.upper() not in _FIRST_WORDS:
            first = tokens[0].text[:40].upper() if tokens else "nothing"
            raise ActionInputError(f"only a SELECT is run, not {first}")
        _check_nesting(kinds, [token.text.upper() for token in tokens], dialect)
        parser = _bounded(reader.parser(), len(tokens))
        [root] = [statement for statement in parser.parse(tokens, sql) if statement is not None]
    except ActionInputError:
        raise
    except RecursionError:
        raise _too_deep() from None
    except Exception as error:  # noqa: BLE001 - the parser raises many types for text that is no SQL
        raise ActionInputError(f"the query cannot be read as {dialect} SQL: {first_line(error)}") from None
    if not isinstance(root, exp.Query):
        raise ActionInputError(f"only a SELECT is run, not {root.key.upper()}")
    _check_depth(root)
    return root


def _too_deep() -> ActionInputError:
    """The error for a query whose nesting would take too much time or memory."""
    return ActionInputError("the query is nested too deeply: write a simpler one")


def _bounded(parser: sqlglot.Parser, tokens: int) -> sqlglot.Parser:
    """A parser that stops if it goes back over its tokens too often (nested joins, types, lambdas)."""
    steps, advance = _STEPS + _STEPS_OF_TOKEN * tokens, parser._advance

    def counted(times: int = 1) -> None:
        nonlocal steps
        steps -= 1
        if steps < 0:
            raise _too_deep()
        advance(times)

    with suppress(AttributeError):  # if the parser is compiled
        parser._advance = counted
    return parser


@cache
def _types(dialect: str) -> frozenset[str]:
    kinds = sqlglot.Dialect.get_or_raise(dialect).parser_class.TYPE_TOKENS
    return frozenset(kind.name for kind in kinds) - {"VAR", "IDENTIFIER"}


def _check_nesting(kinds: list[str], words: list[str], dialect: str) -> None:
    if len(kinds) > _MOST_TOKENS:
        raise ActionInputError(f"the query has more than {_MOST_TOKENS} words and signs: write a shorter one")
    types = _types(dialect)
    opened: list[bool] = []
    prefixes = 0
    for number, kind in enumerate(kinds):
        if kind in _OPENING:
            of_type = number > 0 and kind != "CASE" and (kinds[number - 1] in types or words[number - 1] in _TYPE_WORDS)
            opened.append(of_type)
            if len(opened) > _DEEPEST_BRACKETS or sum(opened) > _DEEPEST_TYPES:
                raise _too_deep()
        elif kind in _CLOSING and opened:
            opened.pop()
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if prefixes > _LONGEST_PREFIX:
            raise _too_deep()


def _check_depth(root: exp.Expr) -> None:
    level = [root]
    for _ in range(_DEEPEST_TREE):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise _too_deep()


def _first_in_words(query: exp.Query) -> str:
    """A phrase that says what the first rows are, such as "highest total revenue"; "" without ORDER BY or LIMIT."""
    order = query.args.get("order")
    if order is None or not order.expressions or query.args.get("limit") is None:
        return ""
    first, what = order.expressions[0], order.expressions[0].this
    if isinstance(what, exp.Literal) and str(what.this).isdigit() and 0 < int(str(what.this)) <= len(query.selects):
        what = query.selects[int(str(what.this)) - 1].unalias()
    elif isinstance(what, exp.Column) and not what.table:
        named = {alias.alias.casefold(): alias.this for alias in query.find_all(exp.Alias)}
        what = named.get(what.name.casefold(), what)
    aggregate = next((node for node in what.walk() if type(node).__name__ in _AGGREGATES), None)
    columns = " ".join(dict.fromkeys(column.name for column in (aggregate or what).find_all(exp.Column)))
    words = f"{_AGGREGATES[type(aggregate).__name__]} {columns or 'rows'}" if aggregate is not None else columns
    return f"{'highest' if first.args.get('desc') else 'lowest'} {words}".strip()[:200]
