"""Resolves the columns of a query, SELECT by SELECT, and bounds what its parts multiply to where they refer to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from sqlglot import exp

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Table

_MOST_SIZE = 50_000
"""Parts of a query when each reference is replaced by what it refers to, as planners do."""
_MOST_TABLES = 64
"""Reads of tables when each reference is replaced so."""
_MOST_COLUMNS = 5_000
_HIDDEN = frozenset("ctid xmin xmax cmin cmax tableoid oid rowid _rowid_ _rowid rownum ora_rowscn".split())  # noqa: SIM905
"""Columns that databases have without being asked for; they are read only where a table lists them."""


@dataclass
class _Relation:
    """What stands in FROM: its columns with the size of what each is computed from, its own size and the tables it reads."""

    columns: list[tuple[str, int]] = field(default_factory=list)
    size: int = 1
    tables: int = 1

    def find(self, name: str) -> int | None:
        return max((size for column, size in self.columns if column == name), default=None)


@dataclass
class _Scope:
    sources: dict[str, _Relation] = field(default_factory=dict)
    aliases: dict[str, int] = field(default_factory=dict)


class Scopes:
    """Checks a query whose tables are known: a column must be one that its source has, or an output that the query names.

    Databases have hidden columns (ctid, rowid), PostgreSQL calls a function for `table.function`, and SQLite takes a wrong
    name in double quotes for a text. `table_of` gives the table of a node, None for a CTE; `exact` compares names as written.
    """

    def __init__(self, table_of: Callable[[exp.Table], Table | None], dialect: str, *, exact: bool) -> None:
        self._table_of = table_of
        self._dialect = dialect
        self._exact = exact
        self._known: dict[str, None] = {}
        self._done: dict[int, _Relation] = {}

    def check(self, root: exp.Query) -> None:
        """Refuse, with an ActionInputError, a column that is not there and a query that grows too large."""
        self._query(root, (), {})

    def _name(self, text: str) -> str:
        return text if self._exact else text.casefold()

    def _query(self, node: exp.Expr, outer: tuple[_Scope, ...], ctes: Mapping[str, _Relation]) -> _Relation:
        ctes = dict(ctes)
        defined = node.args.get("with_")
        for cte in defined.expressions if defined else ():
            ctes[cte.alias.casefold()] = self._renamed(self._query(cte.this, outer, ctes), cte)
        if isinstance(node, exp.Select):
            found = self._select(node, outer, ctes)
        elif isinstance(node, exp.SetOperation):
            found = self._set_operation(node, outer, ctes)
        elif isinstance(node, exp.Subquery):
            found = self._subquery(node, outer, ctes)
        else:
            raise ActionInputError(f"{type(node).__name__.upper()} cannot stand for a SELECT")
        if found.size > _MOST_SIZE or found.tables > _MOST_TABLES or len(found.columns) > _MOST_COLUMNS:
            raise ActionInputError(
                "the query multiplies its parts too often: refer to fewer CTEs and subqueries, and fewer times"
            )
        self._done[id(node)] = found
        return found

    def _renamed(self, found: _Relation, node: exp.Expr) -> _Relation:
        """A relation under its alias, whose column names take the place of the first ones."""
        alias = node.args.get("alias")
        names = [self._name(column.name) for column in (alias.args.get("columns") or () if alias else ())]
        columns = [(names[n] if n < len(names) else name, size) for n, (name, size) in enumerate(found.columns)]
        return _Relation(columns, found.size, found.tables)

    def _set_operation(self, node: exp.SetOperation, outer: tuple[_Scope, ...], ctes: Mapping[str, _Relation]) -> _Relation:
        left, right = self._query(node.this, outer, ctes), self._query(node.expression, outer, ctes)
        columns = left.columns + (right.columns if node.args.get("by_name") else [])
        found = _Relation(columns, left.size + right.size, left.tables + right.tables)
        self._clauses(node, (_Scope(aliases=dict(columns)), *outer), ctes, found, skip=("this", "expression", "with_"))
        return found

    def _subquery(self, node: exp.Subquery, outer: tuple[_Scope, ...], ctes: Mapping[str, _Relation]) -> _Relation:
        inner = self._query(node.this, outer, ctes)
        found = _Relation(inner.columns, inner.size, inner.tables)
        self._clauses(
            node, (_Scope(aliases=dict(inner.columns)), *outer), ctes, found, skip=("this", "alias", "with_", "joins")
        )
        return self._renamed(found, node)

    def _select(self, node: exp.Select, outer: tuple[_Scope, ...], ctes: Mapping[str, _Relation]) -> _Relation:
        scope = _Scope()
        scopes = (scope, *outer)
        # In DuckDB a subquery in FROM sees the tables before it.
        around = scopes if self._dialect == "duckdb" else outer
        begin = node.args.get("from_")
        found = _Relation(tables=0)
        for item in [*([begin.this] if begin else []), *(join.this for join in node.args.get("joins") or ())]:
            self._source(item, scope, around, ctes, found)
        found.size += sum(relation.size for relation in scope.sources.values())
        found.tables += sum(relation.tables for relation in scope.sources.values())
        pending = list(node.expressions)
        # In DuckDB an output may be computed from one before it; its name is no column of a table.
        for part in pending:
            if isinstance(part, exp.Alias) and part.alias.casefold() not in _HIDDEN:
                scope.aliases.setdefault(self._name(part.alias), 0)
        for part in pending:
            size = self._sized(part, scopes, ctes, found)
            name = self._name(part.alias or part.output_name)
            if part.is_star:
                found.columns += self._starred(part, scope)
            else:
                found.columns.append((name, size))
            if name in scope.aliases:
                scope.aliases[name] = max(size, scope.aliases[name])
        self._clauses(node, scopes, ctes, found, skip=("expressions", "with_"))
        return found

    def _source(
        self,
        item: exp.Expr,
        scope: _Scope,
        outer: tuple[_Scope, ...],
        ctes: Mapping[str, _Relation],
        found: _Relation,
    ) -> None:
        if isinstance(item, exp.Subquery) and _is_bracket(item):
            inside = _Scope() if item.alias else scope
            self._source(item.this, inside, outer, ctes, found)
            if item.alias:
                if len(inside.sources) > 1:
                    raise ActionInputError("a join in brackets with an alias is not allowed: give each table its own alias")
                self._add(item, next(iter(inside.sources.values())), scope)
        elif isinstance(item, exp.Table):
            self._add(item, self._read(item, ctes), scope)
        elif isinstance(item, exp.Values):
            rows = item.expressions
            width = len(rows[0].expressions) if rows and isinstance(rows[0], exp.Tuple) else 1
            names = [f"col{n}" if self._dialect == "duckdb" else f"column{n + 1}" for n in range(width)]
            values = _Relation([(name, 1) for name in names], 1, 0)
            for row in rows:
                self._sized(row, outer, ctes, values)
            self._add(item, values, scope)
        else:
            self._add(item, self._query(item, outer, ctes), scope)
        for join in item.args.get("joins") or ():
            self._source(join.this, scope, outer, ctes, found)
            if not _is_bracket(item):
                self._sized(join, (scope, *outer), ctes, found)

    def _read(self, item: exp.Table, ctes: Mapping[str, _Relation]) -> _Relation:
        table = self._table_of(item)
        if table is None:
            found = ctes.get(item.name.casefold())
            if found is None:
                raise ActionInputError(f"there is no table {item.name[:60]!r} here: a CTE is read where it is defined")
            return found
        self._known |= dict.fromkeys(column.name for column in table.columns)
        return _Relation([(self._name(column.name), 1) for column in table.columns])

    def _add(self, item: exp.Expr, found: _Relation, scope: _Scope) -> None:
        name = self._name(item.alias or (item.name if isinstance(item, exp.Table) else ""))
        if name in scope.sources and name:
            raise ActionInputError(f"two tables are called {name[:60]!r} in one FROM: give each an alias")
        scope.sources[name or f"\x00{len(scope.sources)}"] = self._renamed(found, item)

    def _starred(self, part: exp.Expr, scope: _Scope) -> list[tuple[str, int]]:
        qualifier = self._name(part.table) if isinstance(part, exp.Column) else ""
        renamed = [(self._name(alias.alias), 1) for alias in part.find_all(exp.Alias)]
        return renamed + [
            column for name, relation in scope.sources.items() if qualifier in ("", name) for column in relation.columns
        ]

    def _clauses(
        self,
        node: exp.Expr,
        scopes: tuple[_Scope, ...],
        ctes: Mapping[str, _Relation],
        found: _Relation,
        skip: tuple[str, ...],
    ) -> None:
        for key, value in node.args.items():
            if key not in skip:
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, exp.Expr):
                        self._sized(part, scopes, ctes, found)

    def _sized(self, part: exp.Expr, scopes: tuple[_Scope, ...], ctes: Mapping[str, _Relation], found: _Relation) -> int:
        """Check a part of a SELECT, and add what it makes of the query to `found`; the part's own size."""
        total = 0
        for node in part.walk(prune=lambda n: isinstance(n, exp.Query) and not _is_bracket(n)):
            total += 1
            if isinstance(node, exp.Column):
                total += self._column(node, scopes)
            elif isinstance(node, exp.Join):
                for name in node.args.get("using") or ():
                    self._column(exp.column(name.copy()), (_Scope(scopes[0].sources),))
            elif isinstance(node, exp.Query) and not _is_bracket(node) and id(node) not in self._done:
                inner = self._query(node, scopes, ctes)
                total += inner.size
                found.tables += inner.tables
            if total > _MOST_SIZE:
                break
        found.size += total
        return total

    def _column(self, column: exp.Column, scopes: tuple[_Scope, ...]) -> int:
        parts = [self._name(part.name) for part in column.parts]
        if isinstance(column.this, exp.Star):
            size = self._qualified(parts[-2], None, scopes) if len(parts) > 1 else 0
        elif len(parts) == 1:
            size = self._unqualified(parts[0], scopes)
        else:
            size = self._qualified(parts[-2], parts[-1], scopes) if len(parts) == 2 or self._dialect != "duckdb" else None
        if size is None and self._dialect == "duckdb":
            # Fields of a column: table.column.field, schema.table.column, column.field.
            pairs = list(pairwise(parts))[:2]
            found = [self._qualified(table, name, scopes) for table, name in pairs] + [self._unqualified(parts[0], scopes)]
            size = max((one for one in found if one is not None), default=None)
        if size is None:
            there = ", ".join(self._known)[:800]
            raise ActionInputError(
                f"there is no column {'.'.join(p.name for p in column.parts)[-60:]!r}: the columns are {there}"
            )
        return size

    def _qualified(self, source: str, name: str | None, scopes: tuple[_Scope, ...]) -> int | None:
        for scope in scopes:
            relation = scope.sources.get(source)
            if relation is not None:
                return sum(size for _, size in relation.columns) if name is None else relation.find(name)
        return None

    def _unqualified(self, name: str, scopes: tuple[_Scope, ...]) -> int | None:
        hidden = name.casefold() in _HIDDEN
        for scope in scopes[:1] if hidden else scopes:
            sizes = [size for relation in scope.sources.values() if (size := relation.find(name)) is not None]
            if name in scope.aliases and not hidden:
                sizes.append(scope.aliases[name])
            if sizes:
                return max(sizes)
        return None


def _is_bracket(node: exp.Expr) -> bool:
    """Whether a node of FROM is a table, or brackets around tables."""
    while isinstance(node, exp.Subquery):
        node = node.this
    return isinstance(node, exp.Table)
