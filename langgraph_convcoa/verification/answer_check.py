"""The check of an answer: every sentence is verified against the evidence, and its citations are corrected."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from langchain_core.documents import Document

from langgraph_convcoa.text.citation_marks import MARK, CitationFilter, cited_parts, kept_marks, without_marks
from langgraph_convcoa.text.words import CLOSING, LIST_MARK, STOPS
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import Statement, is_sentence, says_gap, statements
from langgraph_convcoa.verification.verifier import LexicalVerifier, Verifier

_MARKS = rf"((?:\s*+{MARK.replace('(', '(?:', 1)})++)"
_AFTER_STOP = re.compile(rf"((?<![{STOPS}])[{STOPS}]++[{CLOSING}]*+){_MARKS}")
_AFTER_COMMA = re.compile(rf"((?<![;,])[;,]++){_MARKS}\s*+\Z")
_STOP = re.compile(rf"(?<![{STOPS};,])[{STOPS};,]++[{CLOSING}]*+\Z")
_POLAR = re.compile(r"\A\W*+(?:yes|no)\W*+", re.IGNORECASE)
_LIST_ITEM = re.compile(rf"(?<!\s)[^\S\n]*+\n\s*+(?:{LIST_MARK}(?:\s|\Z)|\||```|~~~)")
_MOST_MARKS = 3
_SHARE_OF_CLAIM = 0.3  # A document keeps its mark if it holds more than this share of the words in front of the mark.
_WORDS = LexicalVerifier()
_LIST_WORDS = 1_000  # Longest premise from a list or the result of a query, in words. It may be long: only words are compared.
_LONG_CLAIM, _LEAST_WORDS = 14, 4
"""A refused claim of at least `_LONG_CLAIM` words is split into clauses of at least `_LEAST_WORDS` words."""
_JOINS = re.compile(r"(?:[;:]|,? (?:and|but|while|whereas|which|who|or|such as|including|so|because|if)\b|,|\()\s+")


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim.

    `score`: the probability in [0, 1] that the evidence supports the claim. `documents`: indexes of the evidence that it was
    checked against, best first. `quote`: the closest sentence of that evidence. `reason`: why it is not supported, or "".
    """

    score: float
    supported: bool
    documents: tuple[int, ...] = ()
    quote: str = ""
    reason: str = ""


def judge(claims: Sequence[str], evidence: Evidence, verifier: Verifier, threshold: float | None = None) -> list[Verdict]:
    """Judge claims, each against the sentences of the evidence that fit it best.

    A claim that is a sentence of the evidence word for word has the score 1. A long claim that is refused is split into
    clauses, and stands if each clause stands. Results of queries and lists of documents are not prose: a claim is judged by
    the share of its words and figures that they hold. Without evidence, no claim is supported.

    Args:
        claims: Sentences, or short answers with their question (`as_claim`).
        evidence: The pieces of evidence, and the answers of earlier turns.
        verifier: Gives the probability that a premise supports a claim.
        threshold: T: a claim is supported if its probability is above T. By default, the verifier's own T.

    Example:
        >>> from langgraph_convcoa.verification.verifier import LexicalVerifier
        >>> evidence = Evidence([("Tay Bridge", "It was opened in 1878. It collapsed in 1879.")])
        >>> [v.supported for v in judge(["The bridge opened in 1878.", "It burned in 1901."], evidence, LexicalVerifier())]
        [True, False]
    """
    least = verifier.threshold if threshold is None else threshold
    premises = [evidence.premise(claim) for claim in claims]
    found = [Verdict(0.0, False, reason="there is no evidence") for _ in claims]
    asked = []
    for n, (claim, premise) in enumerate(zip(claims, premises, strict=True)):
        if (holder := evidence.holder(claim)) is not None:
            found[n] = Verdict(1.0, least < 1, (holder,), " ".join(claim.split()))
        elif evidence.computed.intersection(premise.documents[:1]):
            premises[n] = premise = evidence.premise(claim, _LIST_WORDS)
            share, bar = _WORDS.support([claim], [premise.text])[0], max(least, _WORDS.threshold)
            reason = "" if share > bar else f"{_WORDS.name}: {share:.2f} is not above {bar:.2f}"
            found[n] = Verdict(share, not reason, premise.documents, premise.best, reason)
        elif premise.text:
            asked.append(n)
    shares = verifier.support([claims[n] for n in asked], [premises[n].text for n in asked]) if asked else []
    shares = _by_clause([claims[n] for n in asked], shares, evidence, verifier, least)
    for n, share in zip(asked, shares, strict=True):
        supported = share > least
        reason = "" if supported else f"{verifier.name}: {share:.2f} is not above {least:.2f}"
        found[n] = Verdict(share, supported, premises[n].documents, premises[n].best, reason)
    return found


def _by_clause(
    claims: Sequence[str], shares: Sequence[float], evidence: Evidence, verifier: Verifier, least: float
) -> list[float]:
    """Raise the share of a long refused claim to that of its weakest clause. Each clause has its own premise."""
    clauses = {n: found for n, share in enumerate(shares) if share <= least and len(found := _clauses(claims[n])) > 1}
    parts = [part for found in clauses.values() for part in found]
    given = iter(verifier.support(parts, [evidence.premise(part).text for part in parts]) if parts else [])
    best = list(shares)
    for n, found in clauses.items():
        best[n] = max(best[n], min([next(given) for _ in found]))
    return best


def _clauses(claim: str) -> list[str]:
    """The clauses of a claim; the claim itself if it is short.

    Example:
        >>> _clauses("His father was an amateur musician, and his mother Otylia played the piano until she died.")
        ['His father was an amateur musician', 'his mother Otylia played the piano until she died']
    """
    if len(claim.split()) < _LONG_CLAIM:
        return [claim]
    found: list[str] = []
    for part in filter(None, (one.strip(" .)") for one in _JOINS.split(claim))):
        if found and min(len(part.split()), len(found[-1].split())) < _LEAST_WORDS:
            found[-1] += f", {part}"
        else:
            found.append(part)
    return found


def as_claim(answer: str, question: str) -> str:
    """An answer as a claim: unchanged if it is a sentence, otherwise with the question in front of it.

    Example:
        >>> as_claim("in 1982", "When was it described?"), as_claim("It was described in 1982.", "When was it described?")
        ('When was it described? in 1982', 'It was described in 1982.')
    """
    return answer if not question or is_sentence(answer) else f"{question.strip()} {answer}"


_NO_CLAIM = Verdict(0.0, False)


@dataclass(frozen=True)
class CheckedSentence:
    """A sentence of an answer, or a table or a block of code."""

    before: str  # The white space in front of it.
    text: str  # The sentence with the marks of the evidence that supports it, each where the model put it.
    plain: str  # The sentence without marks.
    verdict: Verdict
    claims: bool  # Whether it says anything that evidence could support.
    cited: Mapping[int, str]  # The numbers of its marks, each with the part of the sentence that the document supports.
    removed: int = 0  # Number of marks that named no evidence.
    named: Sequence[int] = ()  # The numbers that the model wrote, also those of documents that do not support it.
    block: bool = False  # Whether it is a table or code.

    @property
    def stands(self) -> bool:
        """Whether the sentence is supported or claims nothing."""
        return self.verdict.supported or not self.claims

    @property
    def is_gap(self) -> bool:
        """Whether it only says that the evidence holds no answer."""
        return not self.claims and not self.block and says_gap(self.plain)

    def shown(self, marks: CitationFilter) -> str:
        """The sentence with renumbered marks; code is not changed."""
        before = marks.feed(self.before)
        return before + (marks.verbatim(self.text) if self.block and not self.claims else marks.feed(self.text))


class Checker:
    """Verifies the sentences of an answer. A sentence is judged once, however often it is checked.

    Args:
        evidence: `evidence[n - 1]` is cited as [n].
        history: Earlier questions and answers, which support a claim but are not cited.
        verifier: Judges each sentence.
        question: The question that a short answer such as "in 1982" answers.
        threshold: T; the verifier's own by default.
        keep_marks: Whether the numbers in a text are those of the evidence. If not, the verifier alone chooses the citations.
    """

    def __init__(
        self,
        evidence: Sequence[Document],
        history: Sequence[tuple[str, str]],
        verifier: Verifier,
        question: str = "",
        threshold: float | None = None,
        *,
        keep_marks: bool = True,
    ) -> None:
        self.evidence, self._keep_marks = evidence, keep_marks
        self._history, self._verifier, self._question, self._threshold = history, verifier, question, threshold
        self._verdicts: dict[str, Verdict] = {}

    def check(self, text: str, confirmed: Collection[str] = ()) -> list[CheckedSentence]:
        """Check every sentence of a text, in order.

        `confirmed` holds sentences, without marks, that the model confirmed. They stand whatever the verifier says.
        """
        text = text.strip()
        found = _statements(text)
        claims = [as_claim(s.claim, self._question) if s.claim and not s.block else s.claim for s in found]
        judged = [claim for claim, s in zip(claims, found, strict=True) if claim and not s.block]
        new = [claim for claim in dict.fromkeys(judged) if claim not in self._verdicts]
        self._verdicts.update(zip(new, judge(new, self._premises, self._verifier, self._threshold), strict=True))
        ends = [0, *(s.end for s in found[:-1]), len(text)]
        checked: list[CheckedSentence] = []
        for n, (statement, claim) in enumerate(zip(found, claims, strict=True)):
            before = text[ends[n] : statement.start]
            if statement.block:
                checked.append(self._block(before, statement))
            else:
                checked.append(self._sentence(before, text[statement.start : ends[n + 1]], claim, confirmed))
        return checked

    @cached_property
    def _premises(self) -> Evidence:
        return Evidence.of(self.evidence, self._history)

    def _block(self, before: str, block: Statement) -> CheckedSentence:
        """Check a block. Code claims nothing. The words of a table must be in the evidence."""
        if not block.claim:
            return CheckedSentence(before, block.text, block.text, _NO_CLAIM, False, {}, block=True)
        plain = without_marks(block.text)
        whole = _WORDS.support([block.claim], [" ".join(document.page_content for document in self.evidence)])[0]
        best = max(range(len(self.evidence)), key=lambda n: _share(block.claim, self.evidence[n]), default=-1)
        if best < 0 or whole <= _WORDS.threshold:
            verdict = Verdict(whole, False, (best,) * (best >= 0), reason="it is not in the evidence")
            return CheckedSentence(before, plain, plain, verdict, True, {}, block=True)
        text = f"{plain}\n\n[{best + 1}]"
        return CheckedSentence(before, text, plain, Verdict(whole, True, (best,)), True, {best + 1: plain}, block=True)

    def _sentence(self, before: str, text: str, claim: str, confirmed: Collection[str]) -> CheckedSentence:
        # A mark after the full stop belongs to the sentence too.
        text = _AFTER_STOP.sub(r"\2\1", text)
        plain, verdict, claims = without_marks(text).rstrip(), self._verdicts[claim] if claim else _NO_CLAIM, bool(claim)
        text = text if self._keep_marks else plain
        if claims and _POLAR.fullmatch(plain):
            # One word is too little to verify.
            verdict = replace(verdict, supported=False, reason="a bare yes or no")
        if plain in confirmed:
            verdict = replace(verdict, supported=True)
        given = list(dict.fromkeys(number for _, numbers in cited_parts(text) for number in numbers))
        named = [number for number in given if 0 < number <= len(self.evidence)]
        cited = self._supporting(text, plain, named, verdict, claims)
        text = _AFTER_COMMA.sub(r"\2\1", text.rstrip())
        if not cited and verdict.supported:
            found = [n + 1 for n in verdict.documents if n < len(self.evidence)][:2]
            cited, text = dict.fromkeys(found, plain), with_marks(plain, found)
        if plain.endswith(":") or (claims and not verdict.supported):
            cited = {}
        text = kept_marks(text, cited, _MOST_MARKS)
        return CheckedSentence(before, text, plain, verdict, claims, cited, len(given) - len(named), named)

    def _supporting(self, text: str, plain: str, named: Sequence[int], verdict: Verdict, claims: bool) -> dict[int, str]:
        """The marks whose documents support the sentence or the part in front of the mark, each with the supported text."""
        # A sentence that claims nothing keeps all its marks.
        cited: dict[int, str] = {}
        for part, number in ((part, number) for part, numbers in cited_parts(text) for number in numbers):
            if number not in named or number in cited:
                continue
            document = self.evidence[number - 1]
            if not claims or _share(part, document) > _SHARE_OF_CLAIM:
                cited[number] = part
            elif number - 1 in verdict.documents or _share(plain, document) > _SHARE_OF_CLAIM:
                cited[number] = plain
        return cited


def _statements(text: str) -> list[Statement]:
    """The sentences of a text. "They played:" before a list is not a claim. "Yes." is a claim only if there is no other."""
    found = [replace(s, claim="") if s.text.endswith(":") and _LIST_ITEM.match(text, s.end) else s for s in statements(text)]
    polar = [_POLAR.fullmatch(without_marks(s.text)) is not None for s in found]
    if any(s.claim and not is_polar for s, is_polar in zip(found, polar, strict=True)):
        found = [replace(s, claim="") if is_polar else s for s, is_polar in zip(found, polar, strict=True)]
    return found


def _share(claim: str, document: Document) -> float:
    """The share of a claim's words that a document holds, title included."""
    return _WORDS.support([claim], [f"{document.metadata.get('title') or ''} {document.page_content}"])[0]


def with_marks(plain: str, numbers: Sequence[int]) -> str:
    """A sentence with marks in front of its full stop."""
    marks = "".join(f"[{number}]" for number in numbers)
    return before_stop(plain, f" {marks}") if marks else plain


def before_stop(sentence: str, text: str) -> str:
    """A sentence with a text in front of its full stop."""
    stop = _STOP.search(sentence)
    end = stop.start() if stop else len(sentence)
    return f"{sentence[:end]}{text}{sentence[end:]}"
