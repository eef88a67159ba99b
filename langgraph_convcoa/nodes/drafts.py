"""An answer sentence by sentence: verified against the numbered evidence, its citations checked and completed, while it is
being written or when it is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from langchain_core.documents import Document

from langgraph_convcoa.text.citations import MARK, CitationFilter, cited_parts, kept_marks, without_marks
from langgraph_convcoa.text.clean import cut_answer, flat
from langgraph_convcoa.text.words import content_tokens, content_words
from langgraph_convcoa.verification.claims import BROKEN, SentenceVerdict, verify_sentences
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.references import References
from langgraph_convcoa.verification.support import Similarity
from langgraph_convcoa.verification.verifier import Verifier

_AFTER_STOP = re.compile(rf"((?<![.!?。！？])[.!?。！？]++[\"”’)]*+)((?:\s*+{MARK.replace('(', '(?:', 1)})++)")
_AFTER_COMMA = re.compile(rf"((?<![;,])[;,]++)((?:\s*+{MARK.replace('(', '(?:', 1)})++)\s*+\Z")
_STOP = re.compile(r"(?<![.!?。！？;,])[.!?。！？;,]++[\"”’)]*+\Z")
_POLAR = re.compile(r"\A\W*+(?:yes|no)\W*+", re.IGNORECASE)
_YES = re.compile(r"\A\W*+(?:yes|no)\b[.,:;–—-]*+\s++(?=\w)", re.IGNORECASE)
_ELSEWHERE = re.compile(r"\A“(.*)” stands elsewhere in the evidence")
_SOURCES = re.compile(r"\b(?:passages?|documents?|evidence|sources?|texts?)\b", re.IGNORECASE)
_TELL = (
    "(?:say|mention|give|name|list|tell|state|describe|specify|compare|provide|include|contain|hold|show|explain|address|cover"
    "|indicate|discuss|define|report|identify|offer)(?:e?s)?"
)
_SILENCE = re.compile(
    rf"\A\W*+(?:(?:but|however|otherwise|still|though),?\s+)?"
    rf"(?:(?P<who>(?:the|these|none of the)\s+(?:\w+\s+)?{_SOURCES.pattern})|they|it)\s+"
    rf"(?:(?:do|does|did)(?:\s+not|n['’]t)\s+(?:\w+\s+)?(?:{_TELL}|rank|speak|answer|settle|go)|{_TELL}\s+(?:no|nothing|none|neither))\b"
    rf"(?:[^:;]*|[^:;]*\bbut\s+(?:they|it)\s+[^:;]*:)\Z",
    re.IGNORECASE,
)
_SAYS_NOT = re.compile(
    rf"\A\W*+(?:the|these)\s+(?:\w+\s+)?{_SOURCES.pattern}\s+(?:do|does|did)(?:\s+not|n['’]t)\s+(?:{_TELL})(?:\s+\w+){{0,3}}:\s",
    re.IGNORECASE,
)
_TAIL_BEGINS = re.compile(r"[,;]\s++(?=(?:but|though|while|yet)\s)", re.IGNORECASE)
_IS_NOT_TOLD = r"(?:given|stated|named|mentioned|specified|listed)"
_UNTOLD = re.compile(
    rf"(?<!\w)\w++\s++(?:(?:no|neither)\b[^,;:]{{1,80}}\b(?:is|are)|[^,;:]{{1,60}}\b(?:is|are)\s+not)\s+{_IS_NOT_TOLD}[.!]?\Z",
    re.IGNORECASE,
)
_TELLS_NOT = re.compile(
    r"(?<!\w)\w++\s++(?:(?:it|they)\s+)?(?:(?:name|say|state|mention|specif(?:y|ie)|list)s?\s+(?:no|neither)|(?:do|does)\s+not\s+"
    r"(?:name|say|state|mention|specify|list))\b[^,;:]{1,80}\Z",
    re.IGNORECASE,
)
_REST_IS_THERE, _NAME_ELSEWHERE = 0.6, 0.8
"""Share of a sentence that must be in the evidence for its names to stand elsewhere there, and what is left of its score."""
_ENDED = re.compile(r"[.!?。！？:;…][\"'”’)\]]*\s*\Z")
_LIST_ITEM = re.compile(r"(?<!\s)[^\S\n]*+\n\s*+(?:[-*•]|\d{1,2}[.)])(?:\s|\Z)")
_NEXT = re.compile(r"(?:[.!?。！？:;…][\"'”’)]*(?:\s*\[[\d,;\s–-]+\])*\s+|\n)(?=\S+\s)")
_MOST_MARKS = 3
_SHOWN_AT_ONCE = 4_000
"""Characters of an answer up to which each sentence is shown as soon as it stands."""
_PART_OF_A_CLAIM = 0.3
"""Faith score from which a piece of evidence bears a part of the sentence that cites it."""


@dataclass(frozen=True)
class Checked:
    """A sentence of an answer.

    `before` is the space in front of it; `text` the sentence with the numbers of the evidence that supports it, each where it
    was put; `plain` the same without marks; `cited`: those numbers, each with the part of the sentence that it bears;
    `stands`: it is supported, or claims nothing that evidence could support.
    """

    before: str
    text: str
    plain: str
    verdict: SentenceVerdict
    cited: Mapping[int, str]
    removed: int = 0
    """Marks of no evidence that were taken out."""
    named: Sequence[int] = ()
    """The numbers of evidence that it was written with, also those that do not bear it."""

    @property
    def stands(self) -> bool:
        return self.verdict.supported or not self.verdict.claims


@dataclass(frozen=True)
class Checker:
    """Verifies the sentences of an answer.

    `evidence[n - 1]` is cited as [n]; `references` are the evidence and then the answers of the conversation.
    """

    evidence: Sequence[Document]
    references: References
    question: str = ""
    threshold: float | None = None
    similarity: Similarity | None = None
    verifier: Verifier | None = None
    _supported: dict[str, SentenceVerdict] = field(default_factory=dict, compare=False, repr=False)
    _known: dict[str, list[Checked]] = field(default_factory=dict, compare=False, repr=False)
    _sentences: dict[tuple[str, str, SentenceVerdict], Checked] = field(default_factory=dict, compare=False, repr=False)
    _lines: dict[int, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        evidence: Sequence[Document],
        history: Sequence[tuple[str, str]],
        question: str = "",
        threshold: float | None = None,
        similarity: Similarity | None = None,
        verifier: Verifier | None = None,
    ) -> Checker:
        return cls(evidence, References.of(evidence, history), question, threshold, similarity, verifier)

    def check(self, text: str) -> list[Checked]:
        """Every sentence of a text in order, with what it cites; a text that comes again is not compared again."""
        if text not in self._known:
            self._known[text] = self._check(text)
        return self._known[text]

    def _check(self, text: str) -> list[Checked]:
        # A mark belongs to the sentence in front of it, whichever side of the full stop it stands on.
        text = _AFTER_STOP.sub(r"\2\1", text.strip())
        verdicts = verify_sentences(
            text, self.references, question=self.question, similarity=self.similarity, threshold=self.threshold
        )
        verdicts = [self._of_a_reader(self._what_it_claims(v)) for v in _whole_sentences(text, verdicts)]
        verdicts = [_silent(verdict, before) for verdict, before in zip(verdicts, [None, *verdicts], strict=False)]
        verdicts = [replace(v, claims=False) if _leads_to_list(text, v) else v for v in verdicts]
        verdicts = self._judged(verdicts)
        if any(verdict.claims and not _is_polar(verdict) for verdict in verdicts):
            # "Yes." says what the sentences beside it say.
            verdicts = [replace(v, claims=False) if _is_polar(v) else v for v in verdicts]
        checked: list[Checked] = []
        position = 0
        for n, verdict in enumerate(verdicts):
            end = verdict.end if n + 1 < len(verdicts) else len(text)
            key = (text[position : verdict.start], text[verdict.start : end], verdict)
            if key not in self._sentences:
                self._sentences[key] = self._checked(*key)
            checked.append(self._sentences[key])
            position = end
        return checked

    def _judged(self, verdicts: list[SentenceVerdict]) -> list[SentenceVerdict]:
        """The verdicts of the verifier, if there is one, in place of those by words; a sentence is judged once."""
        if self.verifier is None:
            return verdicts
        new = {v.text: v for v in verdicts if v.claims and not _is_polar(v) and v.text not in self._supported}
        if new:
            titles = [str(document.metadata.get("title") or "") for document in self.evidence]
            texts = [reference.text for reference in self.references.references]
            # After the evidence come the answers of earlier turns.
            evidence = Evidence(list(zip_longest(titles[: len(texts)], texts, fillvalue="")))
            claims = [without_marks(text).strip() for text in new]
            premises = [evidence.premise(claim) for claim in claims]
            shares = self.verifier.support(claims, [premise.text for premise in premises])
            for (text, verdict), premise, share in zip(new.items(), premises, shares, strict=True):
                supported = share > self.verifier.threshold
                reason = "" if supported else f"{self.verifier.name}: {share:.2f} is not above {self.verifier.threshold:.2f}"
                reference = premise.documents[0] if supported and premise.documents else verdict.reference
                judged = replace(verdict, score=share, supported=supported, reason=reason, reference=reference)
                self._supported[text] = judged if supported else replace(judged, also=())
        places = [self._supported.get(v.text) if v.claims else None for v in verdicts]
        return [
            v if found is None else replace(found, start=v.start, end=v.end) for v, found in zip(verdicts, places, strict=True)
        ]

    def _what_it_claims(self, verdict: SentenceVerdict) -> SentenceVerdict:
        """A yes or no that opens a sentence says what the rest says, and what the evidence does not tell is no claim:
        "No. It opened in 1894", "The evidence does not say: the museum is in Tulsa, but no opening date is given".
        """
        if verdict.supported or not verdict.claims:
            return verdict
        opened = _YES.match(verdict.text) or _SAYS_NOT.match(verdict.text)
        begin, end = opened.end() if opened else 0, self._untold(verdict.text)
        if opened is None and end == len(verdict.text):
            return verdict
        rest = verify_sentences(
            verdict.text[begin:end],
            self.references,
            question=self.question,
            similarity=self.similarity,
            threshold=self.threshold,
        )
        claims = [self._of_a_reader(part) for part in rest if part.claims]
        weakest = min(claims, key=lambda part: (part.supported, part.score), default=None)
        return verdict if weakest is None else replace(weakest, text=verdict.text, start=verdict.start, end=verdict.end)

    def _untold(self, text: str) -> int:
        """Where a last clause begins that only says that something is not told: ", but no county is given"; else the end.

        A name or a number that stands nowhere else would be told by it.
        """
        found = max(_TAIL_BEGINS.finditer(text), key=lambda match: match.start(), default=None)
        if found is None:
            return len(text)
        tail = without_marks(text[found.end() :]).strip()
        silent = _UNTOLD.match(tail) or (_SAYS_NOT.match(text) and _TELLS_NOT.match(tail))
        known = {*content_words(text[: found.start()]), *content_words(self.question)}
        named = _named(tail) - known
        if silent and named:
            named -= {word for document in self.evidence for word in content_words(document.page_content)}
        return found.start() if silent and not named else len(text)

    def _of_a_reader(self, verdict: SentenceVerdict) -> SentenceVerdict:
        """Who has read the evidence may take a name from another sentence of it, where the rest is there; not a number."""
        named = _ELSEWHERE.fullmatch(verdict.reason)
        whole = verdict.score / BROKEN
        if named is None or any(sign.isdigit() for sign in named[1]) or whole < _REST_IS_THERE:
            return verdict
        return replace(verdict, score=_NAME_ELSEWHERE * whole, supported=True, reason="")

    def _checked(self, before: str, text: str, verdict: SentenceVerdict) -> Checked:
        plain = without_marks(text).rstrip()
        verdict = self._copied(plain, verdict)
        given = list(dict.fromkeys(number for _, numbers in cited_parts(text) for number in numbers))
        known = [number for number in given if 0 < number <= len(self.evidence)]
        parts = self._borne(text, plain, known, verdict.claims)
        shown = _AFTER_COMMA.sub(r"\2\1", text.rstrip())
        if not parts and verdict.supported and verdict.reference is not None:
            found = [n + 1 for n in (verdict.reference, *verdict.also) if n < len(self.evidence)][:2]
            parts, shown = dict.fromkeys(found, plain), with_marks(plain, found)
        if plain.endswith(":"):
            parts = {}
        return Checked(before, kept_marks(shown, parts, _MOST_MARKS), plain, verdict, parts, len(given) - len(known), known)

    def _borne(self, text: str, plain: str, known: Sequence[int], claims: bool) -> dict[int, str]:
        """Of the numbers that a sentence cites, those that bear what they stand behind, or the whole, each with that part.

        One that adds a name or a number to what the others hold bears a part, too. What claims nothing may point to what it
        likes.
        """
        parts: dict[int, str] = {}
        for part, numbers in cited_parts(text):
            for number in numbers:
                if number in known and number not in parts and not (claims and self._bears(number, part) <= _PART_OF_A_CLAIM):
                    parts[number] = part
        left = [number for number in known if number not in parts]
        scores = {number: self._bears(number, plain) for number in left}
        for number in sorted(left, key=lambda number: -scores[number]):
            if scores[number] > _PART_OF_A_CLAIM or self._names(number, plain) - set().union(
                *(self._names(n, plain) for n in parts)
            ):
                parts[number] = plain
        return parts

    def _names(self, number: int, plain: str) -> set[str]:
        """The names and numbers of a sentence that a piece of evidence holds."""
        return _named(plain).intersection(content_words(self.evidence[number - 1].page_content))

    def _bears(self, number: int, part: str) -> float:
        opened = _YES.match(part) or _SAYS_NOT.match(part)
        own = verify_sentences(part[opened.end() if opened else 0 :], [self.evidence[number - 1]], threshold=self.threshold)
        return max((verdict.score for verdict in own), default=0.0)

    def _copied(self, plain: str, verdict: SentenceVerdict) -> SentenceVerdict:
        """What stands in the evidence word for word is supported, also where it is no sentence, such as a table's row."""
        words = " ".join(plain.split()).strip("….!? ")
        if verdict.supported or not verdict.claims or not words:
            return verdict
        for n in range(len(self.evidence)):
            if words in self._flat(n):
                return replace(verdict, score=1.0, supported=True, reference=n, quote=words, reason="")
        return verdict

    def _flat(self, place: int) -> str:
        """The text of a piece of evidence, every run of white space as one."""
        if place not in self._lines:
            self._lines[place] = flat(self.evidence[place].page_content)
        return self._lines[place]


def _whole_sentences(text: str, verdicts: Sequence[SentenceVerdict]) -> list[SentenceVerdict]:
    """What nothing ends, or no space parts, is one sentence ("Step 1) of", ".csv"): it stands as its weakest piece does, and a
    mark never cuts it.
    """
    whole: list[SentenceVerdict] = []
    for verdict in verdicts:
        last = whole[-1] if whole else None
        parted = last is not None and (
            last.end < verdict.start and (bool(_ENDED.search(last.text)) or "\n" in text[last.end : verdict.start])
        )
        if last is None or parted:
            whole.append(verdict)
            continue
        pieces = [piece for piece in (last, verdict) if piece.claims] or [last]
        weakest = min(pieces, key=lambda piece: (piece.supported, piece.score))
        whole[-1] = replace(weakest, text=text[last.start : verdict.end], start=last.start, end=verdict.end)
    return whole


def _leads_to_list(text: str, verdict: SentenceVerdict) -> bool:
    """Whether a sentence only opens a list, whose items say what it claims: "They played:"."""
    return verdict.text.endswith(":") and _LIST_ITEM.match(text, verdict.end) is not None


def _silent(verdict: SentenceVerdict, before: SentenceVerdict | None) -> SentenceVerdict:
    """A statement that the evidence does not say something is no claim; "they" are the passages that were just named."""
    found = _SILENCE.match(verdict.text)
    if found is None or (found["who"] is None and (before is None or not _SOURCES.search(before.text))):
        return verdict
    return replace(verdict, claims=False, supported=False, reason="")


def _named(text: str) -> set[str]:
    """The names and numbers of a text, as words are compared."""
    return {word.item for word in content_tokens(text) if word.raw[0].isupper() or word.raw[0].isdigit()}


def _is_polar(verdict: SentenceVerdict) -> bool:
    return _POLAR.fullmatch(without_marks(verdict.text)) is not None


def with_marks(plain: str, numbers: Sequence[int]) -> str:
    """A sentence with its marks in front of its full stop, so that they are read as a part of it."""
    marks = "".join(f"[{number}]" for number in numbers)
    stop = _STOP.search(plain)
    end = stop.start() if stop else len(plain)
    return f"{plain[:end]} {marks}{plain[end:]}" if marks else plain


class SentenceGate:
    """Shows the sentences of an answer while it is being written, each when it is complete and verified.

    After the first one that does not stand nothing more is shown: what follows may have to wait for its correction.
    """

    def __init__(self, checker: Callable[[], Checker], message_id: str = "") -> None:
        self.shown = ""
        self.message_id = message_id
        self._checker = checker
        self._made: Checker | None = None
        self._marks: CitationFilter | None = None
        self._passed = 0
        self._closed = False
        self._ended = self._next = 0

    def feed(self, text: str, *, done: bool = False) -> str:
        """Take the answer as it stands so far; returns what can be shown more."""
        if self._closed:
            return ""
        if len(text) < self._next and not done:
            return ""
        # Of a long answer, only now and then: all the work on it stays linear in its length.
        self._next = len(text) + max(0, len(text) - _SHOWN_AT_ONCE) // 8
        text = cut_answer(text)
        ended = max((match.end() for match in _NEXT.finditer(text)), default=0)
        if ended == self._ended and not done:
            # No sentence has ended since: a reply comes in many small pieces.
            return ""
        self._ended = ended
        if self._made is None or self._marks is None:
            self._made = self._checker()
            self._marks = CitationFilter(len(self._made.evidence))
        checked = self._made.check(_complete(text) if not done else text)
        if not done:
            checked = checked[:-1]
        new = ""
        for piece in checked[self._passed :]:
            if not piece.stands or not any(map(str.isalnum, text)):
                self._closed = True
                break
            new += self._marks.feed(piece.before + piece.text)
            self._passed += 1
        if done or self._closed:
            self._closed = True
            new += self._marks.close()
        self.shown += new
        return new


def _complete(text: str) -> str:
    """A text that is still being written, without the word at its end, which may go on."""
    return text[: max(text.rfind(" "), text.rfind("\n"), 0)]
