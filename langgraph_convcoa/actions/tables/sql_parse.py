"""Parses SQL text that must be one SELECT.

Bounds on the tokens are checked before the parser starts, because its time is exponential for some texts.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import sqlglot
from sqlglot import exp

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.errors import first_line

_FIRST_WORDS = ("SELECT", "WITH", "FROM", "(")
_MOST_TOKENS, _DEEPEST_BRACKETS, _DEEPEST_TREE = 6_000, 30, 200
_STEPS, _STEPS_OF_TOKEN = 2_000, 40
"""Maximum steps of the parser: a fixed number, and more for each token. Ordinary queries take three for a token."""
_DEEPEST_TYPES = 3
"""Deepest nesting of brackets after type names. Each level is parsed as a type and as a function: twice the time."""
_OPENING = frozenset({"L_PAREN", "L_BRACKET", "L_BRACE", "CASE"})
_CLOSING = frozenset({"R_PAREN", "R_BRACKET", "R_BRACE", "END"})
_LONGEST_PREFIX = 20
_PREFIXES = frozenset({"NOT", "DASH", "PLUS", "TILDE", "INTERVAL", "DATE", "TIME", "TIMESTAMP", "DISTINCT", "ARROW", "DCOLON"})


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
        raise too_deep() from None
    except Exception as error:  # noqa: BLE001 - the parser raises what it likes over text that is no SQL
        raise ActionInputError(f"the query cannot be read as {dialect} SQL: {first_line(error)}") from None
    if not isinstance(root, exp.Query):
        raise ActionInputError(f"only a SELECT is run, not {root.key.upper()}")
    _check_depth(root)
    return root


def too_deep() -> ActionInputError:
    """The error for a query whose nesting would take too much time or memory."""
    return ActionInputError("the query is nested too deeply: write a simpler one")


def _bounded(parser: sqlglot.Parser, tokens: int) -> sqlglot.Parser:
    """A parser that stops if it goes back over its tokens too often (nested joins, types, lambdas)."""
    steps, advance = _STEPS + _STEPS_OF_TOKEN * tokens, parser._advance

    def counted(times: int = 1) -> None:
        nonlocal steps
        steps -= 1
        if steps < 0:
            raise too_deep()
        advance(times)

    with suppress(AttributeError):  # if the parser is compiled
        parser._advance = counted
    return parser


@cache
def _types(dialect: str) -> frozenset[str]:
    """The kinds of tokens that begin a type."""
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
                raise too_deep()
        elif kind in _CLOSING and opened:
            opened.pop()
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if prefixes > _LONGEST_PREFIX:
            raise too_deep()


_TYPE_WORDS = frozenset({"ARRAY", "STRUCT", "ROW", "MAP", "LIST", "DEC", "OBJECT", "TIMESTAMP", "DATE", "DATETIME", "TIME"})


def _check_depth(root: exp.Expr) -> None:
    level = [root]
    for _ in range(_DEEPEST_TREE):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise too_deep()
