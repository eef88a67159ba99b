"""The query of the sentence ranking: weighted words of a question and of earlier turns, and the kind of answer wanted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from langgraph_convcoa.reasoning.extractive.reading import Token, tokens_of, with_roots
from langgraph_convcoa.text.questions import (
    REASON_WORDS,
    AnswerType,
    answer_type,
    bare,
    is_date,
    is_name,
    is_number,
    leans_on_conversation,
)
from langgraph_convcoa.text.terms import may_be_name
from langgraph_convcoa.text.words import STOP_WORDS, content_words

ROOT_SHARE = 0.5  # Weight of the first letters of a long stem, as a share of the stem's weight.
HISTORY_WEIGHT = 0.6
"""Weight of the previous turn in the vector of a question that depends on it, as in the retriever's conversation state."""

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
_POINTING = re.compile(r"\bthe\b", re.IGNORECASE)
_DEFINITION = re.compile(r"^(?:what|who) (?:is|are|was|were) (?!the\b)\S+(?: \S+)?$", re.IGNORECASE)


KIND_WORDS = frozenset(
    content_words(
        "many much long old far tall high large big often fast deep wide heavy hot cold name happen occur take place part"
        " year date day week month decade century know call stand mean refer definition define term abbreviation acronym"
        " title type kind nationality ever"
    )
)  # Words that say what kind of answer is wanted. The answer need not repeat them.


@dataclass(frozen=True)
class Query:
    """A question as the ranking sees it. Words are stems."""

    texts: tuple[tuple[str, float], ...]  # what an encoder reads, with weights
    said: str  # answer of the turn before, if the question depends on it
    leans: bool  # the question depends on the conversation
    weights: dict[str, float]  # words of the question and of earlier turns
    about: frozenset[str]  # the evidence must hold a share of these words
    names: frozenset[str]  # names and numbers of the question
    pairs: tuple[tuple[str, str], ...]  # neighbouring words of the question
    kind: AnswerType
    asked: frozenset[str] = frozenset()  # words of the question, without those that the answer need not repeat ("many")


def make_query(question: str, history: Sequence[tuple[str, str]] = ()) -> Query:
    """Weigh the words of a question. If it depends on the turns before, their words get a smaller weight.

    A question depends on the conversation if it holds a pronoun, begins with "and" or "what about", or has no content word.
    For another short question ("How many layers?"), the turn before only helps to choose the sentence.
    """
    own = content_words(question)
    weights = _weighed(own, 1.0)
    asked = frozenset(with_roots(own)[: len(own)]) - KIND_WORDS
    about = frozenset(with_roots(sorted(asked))) or frozenset(weights)
    texts, said = [(question, 1.0)], ""
    leans = bool(history) and (not own or leans_on_conversation(question))
    if history:
        if leans or len(set(own)) < 3:
            weights = _context(history, 1.0 if leans else 0.3) | weights
        if leans:
            about = frozenset(weights)
            texts.append((history[-1][0][:1_000], HISTORY_WEIGHT))
            said = history[-1][1]
    tokens = [token for token in tokens_of(question)[1:] if is_name(token.text, False) or is_number(token.text)]
    return Query(
        texts=tuple(texts),
        said=said,
        leans=leans,
        weights=weights,
        about=about,
        names=frozenset(stem for token in tokens for stem in token.stems),
        pairs=tuple(itertools.pairwise(own)),
        kind=answer_type(question),
        asked=asked,
    )


def stands_alone(question: str) -> bool:
    """Whether a question can be understood without the conversation, judged by its words.

    It must have no pronoun, and be "What is X?" or have two content words. With "the", which may point back, also a name.
    """
    if leans_on_conversation(question):
        return False
    if _DEFINITION.match(question):
        return True
    return len(set(content_words(question))) >= 2 and (
        not _POINTING.search(question) or any(is_name(token.text, False) for token in tokens_of(question)[1:])
    )


def _context(history: Sequence[tuple[str, str]], share: float) -> dict[str, float]:
    """Words of the last turn, and of up to two turns before it as long as each depends on the turn before it."""
    weights: dict[str, float] = {}
    for question, answer in reversed(history[-3:]):
        asked = _weighed(content_words(question[:2_000]), 0.4 * share)
        weights = _weighed(content_words(answer[:300]), 0.15 * share) | asked | weights
        if content_words(question) and not leans_on_conversation(question):
            break
        share *= 0.7
    return weights


def _weighed(words: Sequence[str], weight: float) -> dict[str, float]:
    return {word: weight * (ROOT_SHARE if word.endswith("-") else 1.0) for word in with_roots(words)}


def asks_to_compute(question: str) -> bool:
    """Whether a question about the rows of a table asks for a value that no single row holds, such as a sum."""
    return _COMPUTES.search(question) is not None


def of_kind(kind: AnswerType, tokens: Sequence[Token], known: Collection[str] = ()) -> list[bool]:
    """Whether each token of a sentence is of the wanted kind, and has no stem in `known`, the stems of the question.

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
