"""Passages as the sentence ranking reads them: sentences that may be quoted, each with the heading above it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from cachetools import LRUCache, cached
from langchain_core.documents import Document

from langgraph_convcoa.text.words import CJK, ENDED, LIST_MARK, content_words, sentences, stem

MAX_SENTENCE = 80  # Maximum number of tokens of a sentence. A longer sentence is cut into pieces.
ROOT = 5  # A long stem is also compared by this many first letters.
_HEADING_WORDS = 12
_KEPT_CHARACTERS = 500_000
_VERBS = """
    give gave given, take took taken, write wrote written, begin began begun, win won, lose lost, sell sold, buy bought,
    pay paid, make made, hold held, build built, lead led, meet met, find found, leave left, speak spoke spoken, run ran,
    choose chose chosen, fight fought, bring brought, teach taught, know knew known, grow grew grown, become became, come came,
    go went gone, break broke broken, draw drew drawn, fall fell fallen, rise rose risen, sing sang sung, die death dead"""
_IRREGULAR = {stem(form): stem(forms.split()[0]) for forms in _VERBS.split(",") for form in forms.split()}
"""Stems of the forms of irregular verbs, each with the stem of the first form."""
# A CJK character counts as a word; a run without spaces (Thai, a URL) counts one for each 24 characters.
_TOKEN = re.compile(rf"[{CJK}]|[^\s{CJK}]{{1,24}}")
_MARKDOWN_HEADING = re.compile(r"^#{1,6}[^\S\n]++([^\n]++)$", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[^\S\n]*+\n\s*+")
_QUESTION = re.compile(r"[?？؟][*_)\s]*+\Z")
_LIST_ITEM = re.compile(rf"\A(?:[>|]|{LIST_MARK})\s")


@dataclass(frozen=True)
class Token:
    """A word of a sentence, or a CJK character, with its place in the sentence and its stems."""

    text: str
    start: int
    end: int
    stems: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A sentence that may be quoted.

    `question`: the question that it stands under and may answer, or ""; `about`: the stems of the headings above it.
    """

    text: str
    tokens: tuple[Token, ...]
    stems: frozenset[str]
    question: str = ""
    about: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Passage:
    """The sentences of a passage, the stems of its title, and all its stems."""

    parts: tuple[Part, ...]
    title: frozenset[str]
    stems: frozenset[str]

    def around(self, index: int) -> frozenset[str]:
        """Stems of a sentence, of the two beside it under the same heading, and of heading and title."""
        here = self.parts[index]
        beside = self.parts[max(0, index - 1) : index + 2]
        return self.title.union(here.about, *(part.stems for part in beside if part.about == here.about))


def read_passage(document: Document) -> Passage:
    """The sentences of a document that may be quoted. Questions and headings are no parts: they belong to the text below."""
    parts = _parts(document.page_content)
    title = _stem_set(str(document.metadata.get("title") or ""))
    return Passage(parts, title, title.union(*(part.stems | part.about for part in parts)))


def tokens_of(text: str) -> tuple[Token, ...]:
    """The tokens of a text, in order."""
    return tuple(Token(m.group(), m.start(), m.end(), _stems(m.group())) for m in _TOKEN.finditer(text))


def count_words(text: str) -> int:
    """Number of words, as the limit on an answer counts them."""
    return sum(1 for _ in _TOKEN.finditer(text))


def with_roots(stems: Sequence[str]) -> tuple[str, ...]:
    """Stems, and the first letters of long stems, so that "suspension" matches "suspended" in part.

    A form of an irregular verb gets the stem of its present: "gave" is "give".
    """
    present = [_IRREGULAR.get(form, form) for form in stems]
    return (*present, *(f"{form[:ROOT]}-" for form in present if len(form) >= ROOT))


@lru_cache(maxsize=100_000)
def _stems(token: str) -> tuple[str, ...]:
    return with_roots(content_words(token))


def _stem_set(text: str) -> frozenset[str]:
    return frozenset(with_roots(content_words(text)))


def _size(parts: tuple[Part, ...]) -> int:
    return 100 + sum(len(part.text) for part in parts)


@cached(LRUCache[Any, tuple[Part, ...]](_KEPT_CHARACTERS, getsizeof=_size), lock=Lock())
def _parts(text: str) -> tuple[Part, ...]:
    """The parts of a text, cached: the same passage is read for sub-questions, for the answer and for later questions."""
    blocks = list(filter(str.strip, _BLANK_LINE.split(_MARKDOWN_HEADING.sub(r"\n\n# \1\n\n", text))))
    headings = _headings(blocks)
    parts: list[Part] = []
    question, about = "", frozenset[str]()
    for block, is_heading in zip(blocks, headings, strict=True):
        if is_heading:
            question, about = block.strip("# ") if _QUESTION.search(block) else "", _stem_set(block)
            continue
        found = [" ".join(sentence.text.split()) for sentence in sentences(block)]
        for sentence in found:
            if _QUESTION.search(sentence):
                question, about = sentence, _stem_set(sentence)
                continue
            for piece in _pieces(sentence):
                tokens = tokens_of(piece)
                stems = frozenset(stem for token in tokens for stem in token.stems)
                parts.append(Part(piece, tokens, stems, question, about))
        # The rest of a paragraph answers a question inside it. A question that stands alone is answered by the next blocks.
        if question and len(found) > 1:
            question, about = "", frozenset()
    return tuple(part for part in parts if part.tokens)


def _headings(blocks: Sequence[str]) -> list[bool]:
    """Whether each block is a heading: a short line without a full stop, above a paragraph or another heading."""
    found: list[bool] = []
    followed = False
    for block in reversed(blocks):
        line = "\n" not in block.strip() and ": " not in block and not _LIST_ITEM.match(block)
        bare = line and not ENDED.search(block) and len(block.split()) <= _HEADING_WORDS
        found.append(block.startswith("# ") or (bare and followed))
        followed = found[-1] or ENDED.search(block) is not None
    return found[::-1]


def _pieces(sentence: str) -> list[str]:
    tokens = tokens_of(sentence)
    if len(tokens) <= MAX_SENTENCE:
        return [sentence]
    blocks = (tokens[first : first + MAX_SENTENCE] for first in range(0, len(tokens), MAX_SENTENCE))
    return [sentence[block[0].start : block[-1].end] for block in blocks]
