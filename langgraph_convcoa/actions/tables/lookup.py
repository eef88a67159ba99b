"""Look-ups in tables without a model: matches a question's words with columns and their values, and computes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from langgraph_convcoa.actions.tables.engine import Column, Result, Table
from langgraph_convcoa.text.words import content_words, stem, words

_COMPUTES = frozenset(
    """highest lowest most least max maximum min minimum largest smallest biggest best worst top bottom total sum average
    mean median count many number compare compared difference differ more less fewer greater higher lower over under
    above below between before after since until during than per each every all growth grow increase decrease change
    trend rank share percent percentage ratio first last latest earliest newest oldest recent longest shortest
    cheapest not without except excluding other any or together combined overall""".split()  # noqa: SIM905
)
"""Words that ask for more than a look-up, unless a column or a value holds them."""
_PLAIN = frozenset(map(stem, "value show tell give list find name much row entry record table data column".split()))  # noqa: SIM905
_LONGEST_VALUE, _MOST_WORDS = 6, 40
"""Words of the longest value that is looked for, and of a question."""
_NUMERIC = re.compile(r"INT|DEC|NUM|FLOAT|DOUBLE|REAL|YEAR|SERIAL", re.IGNORECASE)
_KEY = re.compile(r"year|date|month|(?:^|_)id$|number|code", re.IGNORECASE)
_TEXT = re.compile(r"CHAR|TEXT|STRING|ENUM|UUID|CLOB", re.IGNORECASE)

Run = Callable[[str], Result]
"""Runs a query that this module wrote."""


@dataclass
class LookUp:
    """A look-up in one table: which columns are asked for, and which values rows must have."""

    table: Table
    asked: list[str] = field(default_factory=list)
    filters: dict[str, list[str]] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)

    def sql(self, dialect: str) -> str:
        """The query: the columns of the filters and those asked for, or all columns where none is."""
        columns = list(dict.fromkeys([*self.filters, *self.asked])) if self.asked else []
        chosen: list[exp.Expr] = [_named(column) for column in columns] or [exp.Star()]
        query = exp.select(*chosen).from_(_place(self.table))
        types = {column.name: column.type for column in self.table.columns}
        for column, values in self.filters.items():
            query = query.where(_equals(column, values, number=_TEXT.search(types[column]) is None))
        return str(query.sql(dialect=dialect))


def find_look_up(question: str, tables: Sequence[Table], run: Run, dialect: str) -> LookUp | str:
    """The look-up that a question asks for, or the reason why it asks for none.

    Every content word of the question must be a word of a column's or the table's name, or of a value that some row has.
    """
    asked = words(question)[:_MOST_WORDS]
    found = [_in_table(question, asked, table, run, dialect) for table in tables]
    whole = [look_up for look_up in found if look_up.filters and not look_up.unexplained]
    if whole:
        return max(whole, key=lambda look_up: (len(look_up.asked), sum(map(len, look_up.filters.values()))))
    best = max(found, key=lambda look_up: (bool(look_up.filters), -len(look_up.unexplained)), default=None)
    if best is None or not best.filters:
        return "the question names no value of the tables"
    written = {stem(word): word for word in reversed(asked)}
    return f"no column or value is called {', '.join(repr(written.get(word, word)) for word in best.unexplained[:5])}"


def _in_table(question: str, asked: Sequence[str], table: Table, run: Run, dialect: str) -> LookUp:
    look_up = LookUp(table)
    explained = set(_PLAIN)
    stems = {stem(word) for word in asked}
    for column in table.columns:
        parts = {stem(word) for word in _name_words(column.name)}
        if parts and parts <= stems:
            look_up.asked.append(column.name)
            explained |= parts
    explained.update(map(stem, _name_words(table.name)))
    for column in table.columns:
        for value, used in _values(column, asked, table, run, dialect):
            look_up.filters.setdefault(column.name, []).append(value)
            explained |= {stem(word) for word in used}
    _drop_numbers_by_chance(look_up)
    # A column that is filtered by is shown in any case.
    look_up.asked = [name for name in look_up.asked if name not in look_up.filters]
    wanted = dict.fromkeys([*content_words(question), *(stem(word) for word in asked if word in _COMPUTES)])
    look_up.unexplained = [word for word in wanted if word not in explained]
    return look_up


def _drop_numbers_by_chance(look_up: LookUp) -> None:
    """Of numeric columns that hold a number of the question keep those that it names, else the one most like a key."""
    numeric = [column.name for column in look_up.table.columns if column.name in look_up.filters and _is_number(column)]
    kept = [name for name in numeric if name in look_up.asked] or sorted(numeric, key=lambda n: _KEY.search(n) is None)[:1]
    for name in numeric:
        if name not in kept:
            del look_up.filters[name]


def _is_number(column: Column) -> bool:
    return _NUMERIC.search(column.type) is not None and _TEXT.search(column.type) is None


def _values(column: Column, asked: Sequence[str], table: Table, run: Run, dialect: str) -> Iterator[tuple[str, Sequence[str]]]:
    """The values of a column that the question names, the longest first, each with its words."""
    spans = dict(_spans(asked, number=_is_number(column)))
    if not spans or not (_is_number(column) or _TEXT.search(column.type)):
        return
    if _is_number(column):
        condition = _equals(column.name, list(spans), number=True)
    else:
        condition = exp.Lower(this=_named(column.name)).isin(*spans)
    query = exp.select(_named(column.name)).distinct().from_(_place(table)).where(condition).limit(50)
    taken: set[str] = set()
    found = {_key(str(row[0])): str(row[0]) for row in run(query.sql(dialect=dialect)).rows}
    for text, used in sorted(spans.items(), key=lambda item: -len(item[1])):
        value = found.get(_key(text))
        if value is not None and not taken & set(used):
            taken |= set(used)
            yield value, used


def _key(text: str) -> str:
    return f"{float(text):g}" if re.fullmatch(r"-?\d+(?:\.\d+)?", text) else text.casefold()


def _spans(asked: Sequence[str], *, number: bool) -> Iterator[tuple[str, Sequence[str]]]:
    if number:
        yield from ((word, [word]) for word in asked if re.fullmatch(r"\d{1,15}(?:\.\d{1,6})?", word))
        return
    for length in range(1, _LONGEST_VALUE + 1):
        for start in range(len(asked) - length + 1):
            span = asked[start : start + length]
            # A value of function words only ("it", "us") is in many a question by chance.
            if content_words(" ".join(span)):
                yield " ".join(span), span


def _name_words(name: str) -> list[str]:
    return words(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " "))


def _named(column: str) -> exp.Column:
    return exp.column(exp.to_identifier(column, quoted=True))


def _place(table: Table) -> exp.Table:
    place = exp.Table(this=exp.to_identifier(table.name, quoted=True))
    if table.schema:
        place.set("db", exp.to_identifier(table.schema, quoted=True))
    return place


def _equals(column: str, values: Sequence[str], *, number: bool) -> exp.Expr:
    made: list[exp.Expr] = [(exp.Literal.number if number else exp.Literal.string)(value) for value in values]
    return exp.EQ(this=_named(column), expression=made[0]) if len(made) == 1 else _named(column).isin(*made)
