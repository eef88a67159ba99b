"""Whether a sentence can answer a question of a kind: "who" needs a name, "when" a time, "how many" a number."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from langgraph_convcoa.reasoning.extractive.reading import Token
from langgraph_convcoa.text.questions import REASON_WORDS, AnswerType, bare, is_date, is_name, is_number
from langgraph_convcoa.text.terms import may_be_name
from langgraph_convcoa.text.words import STOP_WORDS

NEEDED: dict[AnswerType, str] = {"person": "name", "date": "time", "number": "number"}
"""Kinds of question, and the kind of word that their answers must hold."""
_TIMES = frozenset(
    """morning afternoon evening night noon midnight today daily weekly monthly yearly annually spring summer autumn winter
    christmas easter day days week weeks month months year years hour hours minutes before after during until when""".split()  # noqa: SIM905
)
_AMOUNTS = frozenset(
    "several few numerous daily weekly annually all no none single both couple dozens hundreds thousands millions".split()  # noqa: SIM905
)
_COMPUTES = re.compile(
    r"\b(?:total|sum|average|mean|median|altogether|overall|most|least|(?:high|low|larg|small|bigg|great)est|best|worst|top)\b",
    re.IGNORECASE,
)


def asks_to_compute(question: str) -> bool:
    """Whether a question about the rows of a table asks for what no single row says."""
    return _COMPUTES.search(question) is not None


def of_kind(kind: AnswerType, tokens: Sequence[Token], known: Collection[str] = ()) -> list[bool]:
    """Whether each token of a sentence is of the wanted kind, with no stem in `known`, the stems of the question.

    Example:
        >>> from langgraph_convcoa.reasoning.extractive.reading import tokens_of
        >>> said = ("The lamp was lit in March.", "Ada Byron lit it.", "It was lit by the club.")
        >>> [any(of_kind("person", tokens_of(text))) for text in said]
        [False, True, True]
    """
    before = ["", *(token.text for token in tokens[:-1])]
    new = [not any(stem in known for stem in token.stems) for token in tokens]
    return [is_new and _fits(kind, token, left) for is_new, token, left in zip(new, tokens, before, strict=True)]


def _fits(kind: AnswerType, token: Token, before: str) -> bool:
    text, word = token.text, bare(token.text).lower()
    if kind == "date":
        return is_date(text) or word[:1].isdigit() or word in _TIMES
    if kind == "number":
        # "Lark-2" is a name.
        return (is_number(text) and not (word[:1].isalpha() and word[-1:].isdigit())) or word in _AMOUNTS
    if kind == "reason":
        return word in REASON_WORDS
    if kind == "thing" or before.lower() == "by":
        return True
    # A capitalised first word is a name only if it is no English word: "Shakespeare wrote it", not "Boats are".
    opens = not before and all(map(may_be_name, token.stems[:1]))
    return is_name(text, first=False) and not is_date(text) and word not in STOP_WORDS and (bool(before) or opens)
