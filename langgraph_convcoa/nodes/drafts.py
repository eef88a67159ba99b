"""An answer sentence by sentence: verified against the numbered evidence, its citations checked and completed, while it is
being written or when it is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.documents import Document

from langgraph_convcoa.text.citations import MARK, CitationFilter, without_marks
from langgraph_convcoa.text.clean import cut_answer, flat
from langgraph_convcoa.verification.claims import BROKEN, SentenceVerdict, verify_sentences
from langgraph_convcoa.verification.references import References
from langgraph_convcoa.verification.support import Similarity

_MARK = re.compile(MARK)
_AFTER_STOP = re.compile(rf"((?<![.!?。！？])[.!?。！？]++[\"”’)]*+)((?:\s*+{MARK.replace('(', '(?:', 1)})++)")
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

    `before` is the space in front of it; `text` the sentence with the numbers of the evidence that supports it; `plain` the
    same without marks; `stands`: it is supported, or claims nothing that evidence could support.
    """

    before: str
    text: str
    plain: str
    verdict: SentenceVerdict
    cited: tuple[int, ...]
    removed: int = 0
    """Marks of no evidence that were taken out."""

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
    ) -> Checker:
        return cls(evidence, References.of(evidence, history), question, threshold, similarity)

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
        verdicts = [self._of_a_reader(self._without_yes(v)) for v in _whole_sentences(text, verdicts)]
        verdicts = [_silent(verdict, before) for verdict, before in zip(verdicts, [None, *verdicts], strict=False)]
        verdicts = [replace(v, claims=False) if _leads_to_list(text, v) else v for v in verdicts]
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

    def _without_yes(self, verdict: SentenceVerdict) -> SentenceVerdict:
        """A yes or no that opens a sentence says what the rest says: "No. It opened in 1894"."""
        opened = _YES.match(verdict.text)
        if opened is None or verdict.supported or not verdict.claims:
            return verdict
        rest = verify_sentences(
            verdict.text[opened.end() :],
            self.references,
            question=self.question,
            similarity=self.similarity,
            threshold=self.threshold,
        )
        claims = [self._of_a_reader(part) for part in rest if part.claims]
        weakest = min(claims, key=lambda part: (part.supported, part.score), default=None)
        return verdict if weakest is None else replace(weakest, text=verdict.text, start=verdict.start, end=verdict.end)

    def _of_a_reader(self, verdict: SentenceVerdict) -> SentenceVerdict:
        """Who has read the evidence may take a name from another sentence of it, where the rest is there; not a number."""
        named = _ELSEWHERE.fullmatch(verdict.reason)
        whole = verdict.score / BROKEN
        if named is None or any(sign.isdigit() for sign in named[1]) or whole < _REST_IS_THERE:
            return verdict
        return replace(verdict, score=_NAME_ELSEWHERE * whole, supported=True, reason="")

    def _checked(self, before: str, text: str, verdict: SentenceVerdict) -> Checked:
        verdict = self._copied(without_marks(text), verdict)
        given = list(dict.fromkeys(int(d) for marks in _MARK.findall(text) for d in re.findall(r"\d{1,9}", marks)))
        known = [number for number in given if 0 < number <= len(self.evidence)]
        plain = without_marks(text).rstrip()
        # Of what a claim cites, only what bears a part of it; what claims nothing may point to what it likes.
        supports = self._supports(plain, known) if verdict.claims else known
        if not supports and verdict.supported and verdict.reference is not None:
            supports = [n + 1 for n in (verdict.reference, *verdict.also) if n < len(self.evidence)][:2]
        cited = () if plain.endswith(":") else tuple(supports[:_MOST_MARKS])
        return Checked(before, with_marks(plain, cited), plain, verdict, cited, len(given) - len(known))

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

    def _supports(self, plain: str, numbers: Sequence[int]) -> list[int]:
        """Of the numbers that a sentence cites, those whose text bears a part of it, the best first."""
        scores = {}
        for number in numbers:
            own = verify_sentences(plain, [self.evidence[number - 1]], threshold=self.threshold)
            scores[number] = max((v.score for v in own), default=0.0)
        return [n for n in sorted(scores, key=lambda n: -scores[n]) if scores[n] > _PART_OF_A_CLAIM]


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
