"""Which passages hold the names, numbers, quoted and rare words of a question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from langchain_core.documents import Document

from langgraph_convcoa.reasoning.extractive.query import KIND_WORDS
from langgraph_convcoa.text.questions import PERSONAL
from langgraph_convcoa.text.terms import Held, Term, find_terms
from langgraph_convcoa.text.words import content_words

NOTHING = "I found nothing about this in the documents."  # The answer if nothing was found. The nearest passage may follow.
_LONGEST = 500  # A pronoun is looked for only in this many characters of a question.
_TITLES = ("title", "heading", "section")
_PRONOUN = re.compile(rf"\b(?:{PERSONAL})\b(?!['’]s\s+(?:true|like))", re.IGNORECASE)
_OPENS = re.compile(r"^\W*(who|what|which)\b", re.IGNORECASE)
# In "How long does it take to ..." and "Is it true that ...", the pronoun stands for the words after it.
_STANDS_FOR_REST = re.compile(r"\b(?:that|to|for|when|if|whether|who|which)\b|\btime\b", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """Terms that are held or missed together: the words of a name, the words of a quotation, or a single word."""

    terms: tuple[Term, ...]

    @property
    def text(self) -> str:
        """The terms as they stand in the question."""
        return " ".join(term.text for term in self.terms)

    def held(self, here: Held, anywhere: Held) -> bool:
        """Whether a passage holds the group.

        The last uncommon word of a name must stand in the passage. Words before it may be initials or stand elsewhere.
        If all words are common, as in a title, half of them are enough.
        """
        keys = [term for term in self.terms if not term.common and len(term.text) > 1]
        if not keys:
            return 2 * sum(map(here.holds, self.terms)) >= len(self.terms)
        if keys[0].kind != "name":
            return all(map(here.holds, keys))
        *before, last = keys
        return here.holds(last) and all(here.holds(t) or here.holds_initial(t, last) or anywhere.holds(t) for t in before)


@dataclass(frozen=True)
class Coverage:
    """Shares of the terms of a question that the passages of the evidence hold.

    `shares`: share of the question's terms in each passage, 1 if the question has none; `missing`: why no passage can hold
    the answer, or "".
    """

    shares: tuple[float, ...]
    missing: str = ""

    def may_answer(self, passage: int) -> bool:
        """Whether a passage holds half of the terms, or as many as the best passage if no passage holds half."""
        most = max(self.shares, default=0.0)
        return self.shares[passage] > 0 and self.shares[passage] >= min(most, 0.5)


def cover(
    question: str, evidence: Sequence[Document], history: Sequence[tuple[str, str]] = (), leans: bool = False
) -> Coverage:
    """Find which passages hold the names, numbers, quoted and rare words of a question.

    A question that depends on the conversation (`leans`) and names nothing is about the names of earlier turns. A term of an
    earlier answer need not stand in the evidence.

    Example:
        >>> evidence = [Document("Oslo was founded in 1040."), Document("Bergen lies in the west.")]
        >>> cover("When was Oslo founded?", evidence).shares
        (1.0, 0.0)
        >>> cover("When was Hopfax founded?", evidence).missing
        'no passage holds “Hopfax”'
        >>> cover("When was it founded?", evidence).missing
        'there is no conversation that says what “it” stands for'
        >>> cover("When was it founded?", evidence, [("Where is Oslo?", "In Norway [1].")], leans=True).shares
        (1.0, 0.0)
    """
    groups = group_terms(find_terms(question))
    # A title or heading may hold a name too.
    texts = [(one.page_content, *(str(one.metadata[key]) for key in _TITLES if one.metadata.get(key))) for one in evidence]
    anywhere = Held(text for passage in texts for text in passage)
    passages = [Held(passage) for passage in texts]
    if not groups:
        if not history and (word := _bare_pronoun(question)):
            return Coverage((0.0,) * len(evidence), f"there is no conversation that says what “{word}” stands for")
        return _about_subject(passages, anywhere, history) if leans else Coverage((1.0,) * len(evidence))
    said = Held([answer for _, answer in history[-3:] if not answer.startswith(NOTHING)])
    known = [group.held(said, said) for group in groups]
    if missing := [
        g.text for g, is_known in zip(groups, known, strict=True) if not is_known and not g.held(anywhere, anywhere)
    ]:
        return Coverage((0.0,) * len(evidence), f"no passage holds {', '.join(f'“{text}”' for text in missing)}")
    return Coverage(
        tuple(sum(k or g.held(p, anywhere) for g, k in zip(groups, known, strict=True)) / len(groups) for p in passages)
    )


def _about_subject(passages: Sequence[Held], anywhere: Held, history: Sequence[tuple[str, str]]) -> Coverage:
    """A passage must hold a name that the conversation is about, if any passage does."""
    every = (1.0,) * len(passages)
    for question, answer in reversed(history[-3:]):
        asked = group_terms(find_terms(question[:2_000]))
        nothing = answer.startswith(NOTHING)
        if nothing and asked and not any(group.held(anywhere, anywhere) for group in asked):
            return Coverage((0.0,) * len(passages), f"no passage holds “{asked[0].text}”")
        groups = [*asked, *(() if nothing else group_terms(find_terms(answer[:300])))]
        if groups and asked:
            shares = tuple(float(any(group.held(p, anywhere) for group in groups)) for p in passages)
            return Coverage(shares if any(shares) else every)
    return Coverage(every)


def _bare_pronoun(question: str) -> str:
    """The pronoun that the question itself does not explain, or ""."""
    found = _PRONOUN.search(question[:_LONGEST])
    if found is None:
        return ""
    before = set(content_words(question[: found.start()])) - KIND_WORDS
    after, word = question[found.end() :], found[0].lower()
    # "Who introduced it?", "What film did he make?": one word before the pronoun does not explain it.
    opens = _OPENS.match(question)
    if len(before) > (opens is not None):
        return ""
    did = bool(before and opens and opens[1].lower() == "who")
    return word if word != "it" or did or (content_words(after) and not _STANDS_FOR_REST.search(after)) else ""


def group_terms(terms: Sequence[Term]) -> tuple[Group, ...]:
    """The groups of a question's terms, in order."""
    parted = groupby(enumerate(terms), key=lambda pair: (pair[1].kind, _part(*pair)))
    return tuple(Group(tuple(term for _, term in members)) for _, members in parted)


def _part(place: int, term: Term) -> int:
    return term.run if term.kind == "name" else -1 if term.kind == "quoted" else place
