"""Evidence as a prompt shows it: excerpts within a budget of words, as a numbered list in a fence."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from langchain_core.documents import Document

from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.words import CLOSING, STOPS, Sentence, content_words, sentences

FIRST, LATER = 3, 0.8
"""The first 3 pieces get equal parts of the words. A later piece, which seldom holds the answer, gets 0.8 of a part."""
ELLIPSIS = "…"
_SLACK = 1.2  # A passage is not cut if it is at most this factor longer than its part.
_QUOTED = 1.5
_NEIGHBOUR = 0.5
"""Extra value of a sentence in the passage's quote, and of a sentence beside a chosen one; 1 is the best word's value."""
_REPEATED_LINE_WORDS = 3
_ENDED = re.compile(rf"[{STOPS}][{CLOSING}]*\s*\Z")
_NAME_CHARACTERS = 8
_FENCE = re.compile(r"<(?=[\s/]{0,9}evidence\b)", re.IGNORECASE)
_FORGED = re.compile(r"^(\s*+)\[\s*+(\d++)\s*+\]")
_ROWS = re.compile(r"\.jsonl?(\.gz)?$")
_DATE = re.compile(r"\d{4}(-\d\d){0,2}")


@dataclass(frozen=True)
class Excerpt:
    """What a prompt shows of a piece of evidence under its number."""

    number: int
    document: Document
    text: str


def excerpts(evidence: Sequence[Document], about: Sequence[str], *, words: int, keep: Collection[str] = ()) -> list[Excerpt]:
    """Cut each piece of evidence to the sentences that matter, in their order; … marks what is left out.

    Args:
        evidence: The pieces, best first; they are numbered from 1.
        about: Texts that the sentences should fit. The last text, such as the present question, counts most.
        words: Average number of words of a piece. The words that a short piece does not need go to the other pieces.
        keep: Sentences that are never cut, such as those that support a guess.
    """
    numbered = dict(enumerate(evidence, 1))
    kept = {flat(text) for text in keep if text.strip()}
    repeated = _repeated_lines(numbered.values())
    shown: set[str] = set()
    texts = {number: _without(repeated, document, kept, shown) for number, document in numbered.items()}
    lengths = {number: len(text.split()) for number, text in texts.items()}
    found = {n: min(len(_found_part(numbered[n]).split()) or lengths[n], lengths[n]) for n in numbered}
    budgets = _budgets(found, words * len(texts))
    # The neighbours of the found parts share the words that the found parts leave over.
    beside = _budgets({n: lengths[n] - found[n] for n in numbered}, words * len(texts) - sum(budgets.values()))
    budgets = {n: budgets[n] + beside[n] for n in numbered}
    wanted = _wanted(about)
    return [
        Excerpt(number, document, _cut(texts[number], document, wanted, budgets[number], kept))
        for number, document in numbered.items()
    ]


def _wanted(about: Sequence[str]) -> dict[str, float]:
    wanted: dict[str, float] = {}
    for distance, text in enumerate(reversed([text for text in about if text.strip()])):
        for word in content_words(text):
            wanted.setdefault(word, 1.0 if distance == 0 else 0.4)
    return wanted


def _budgets(lengths: Mapping[int, int], total: int) -> dict[int, int]:
    """The number of words of each piece: a share of the total by its rank, at most its length."""
    budgets: dict[int, int] = {}
    left, ranks = total, {number: 1.0 if rank < FIRST else LATER for rank, number in enumerate(lengths)}
    for number in sorted(lengths, key=lambda n: lengths[n] / ranks[n]):
        share = round(left * ranks[number] / sum(part for n, part in ranks.items() if n not in budgets))
        budgets[number] = min(share, lengths[number])
        left -= budgets[number]
    return budgets


def _repeated_lines(evidence: Collection[Document]) -> set[str]:
    """Lines that more than one piece of evidence has, such as menus and forms."""
    counted: Counter[str] = Counter()
    for document in evidence:
        counted.update({line.strip() for line in document.page_content.split("\n")})
    return {line for line, count in counted.items() if count > 1 and len(line.split()) >= _REPEATED_LINE_WORDS}


def _without(repeated: set[str], document: Document, kept: Collection[str], shown: set[str]) -> str:
    """The text without repeated lines and without its title as first line; the whole text if nothing else is left."""
    # A repeated line that ends like a sentence stays in the first piece that has it, and is added to `shown`.
    title = str(document.metadata.get("title") or "").strip()
    lines = document.page_content.strip().split("\n")
    if len(lines) > 1 and title and lines[0].strip().strip("#* ") == title:
        lines = lines[1:]
    first = {line.strip() for line in lines if _ENDED.search(line)} - shown
    shown |= first
    left_out = repeated - first
    left = [line for line in lines if line.strip() not in left_out or any(text in line for text in kept)]
    plain = (" ".join(line.split()) for line in left)
    return "\n".join(line for line in plain if line) or document.page_content.strip()


def _cut(text: str, document: Document, wanted: Mapping[str, float], budget: int, kept: Collection[str]) -> str:
    if len(text.split()) <= budget * _SLACK:
        return text
    pieces: list[Sentence] = []
    offset = 0
    for line in text.split("\n"):
        pieces += [Sentence(piece.text, offset + piece.start, offset + piece.end) for piece in sentences(line)]
        offset += len(line) + 1
    chosen = _chosen(pieces, document, wanted, budget, kept)
    parts: list[str] = []
    for n in sorted(chosen):
        piece = pieces[n]
        if n - 1 in chosen:
            gap = text[pieces[n - 1].end : piece.start]
            parts.append("\n" if "\n" in gap else " ")
        elif n:
            parts.append(f" {ELLIPSIS} " if parts else f"{ELLIPSIS} ")
        parts.append(piece.text)
    if chosen and max(chosen) < len(pieces) - 1:
        parts.append(f" {ELLIPSIS}")
    return "".join(parts)


def _chosen(
    pieces: Sequence[Sentence], document: Document, wanted: Mapping[str, float], budget: int, kept: Collection[str]
) -> set[int]:
    """Choose sentences within the budget: first those that are never cut, then the most valuable ones."""
    words = [set(content_words(piece.text)) for piece in pieces]
    lengths = [len(piece.text.split()) for piece in pieces]
    counted = Counter(word for held in words for word in held)
    worth = {word: weight * math.log(1 + len(pieces) / counted[word]) for word, weight in wanted.items() if word in counted}
    scale = max(worth.values(), default=1.0)
    quote = flat(str(document.metadata.get("quote") or ""))
    texts = [flat(piece.text) for piece in pieces]
    found = _found_part(document)
    values = [
        math.fsum(worth.get(word, 0.0) for word in held) + _QUOTED * scale * bool(quote and text in quote)
        for held, text in zip(words, texts, strict=True)
    ]
    chosen = {n for n, text in enumerate(texts) if any(text in other or other in text for other in kept)}
    left = budget - sum(lengths[n] for n in chosen)
    while len(chosen) < len(pieces):
        beside = {n + step for n in chosen for step in (-1, 1)}
        rest = [n for n in range(len(pieces)) if n not in chosen and (lengths[n] <= left or not chosen)]
        if not rest:
            break
        # Sentences of the found part come before its neighbours.
        best = max(rest, key=lambda n: (texts[n] in found, values[n] + _NEIGHBOUR * scale * (n in beside), -n))
        chosen.add(best)
        left -= lengths[best]
    return chosen


def _found_part(document: Document) -> str:
    """The part of a document that the search found, if neighbouring parts were returned with it; otherwise ""."""
    place = document.metadata.get("part")
    if not isinstance(place, Sequence) or [type(n) for n in place] != [int, int]:
        return ""
    return flat(document.page_content[place[0] : place[1]])


def fence(evidence: Sequence[Excerpt], beside: Iterable[str] = ()) -> str:
    """Put evidence as a numbered list into a fence. The fence's name is in no piece and no text of `beside`: none closes it.

    Each piece has its number, its title or source, and its date. No line of a piece looks like the heading of another.
    """
    if not evidence:
        return "(none)"
    blocks = []
    for piece in evidence:
        metadata = piece.document.metadata
        source = str(metadata.get("source") or piece.document.id or "")
        name = flat(str(metadata.get("title") or ("" if _ROWS.search(source) else source)))
        date = _DATE.match(str(metadata.get("date") or ""))
        text = "\n".join(_FORGED.sub(r"\1(\2)", line) for line in piece.text.strip().splitlines())
        blocks.append(unfenced(f"{f'[{piece.number}] {name[:120]}'.rstrip()}{f' ({date[0]})' if date else ''}\n{text}"))
    inside = "\n".join(blocks)
    near = "\0".join((inside, *beside)).casefold()
    seed = "\0".join(piece.text for piece in evidence).encode("utf-8", "replace")
    names = (hashlib.sha256(seed + b"\0" * n).hexdigest()[:_NAME_CHARACTERS] for n in count())
    name = next(name for name in names if name not in near)
    return f"<evidence-{name}>\n{inside}\n</evidence-{name}>"


def unfenced(text: str) -> str:
    """Change a foreign text so that nothing in it looks like the beginning or the end of a fence."""
    return _FENCE.sub("‹", text)
