"""An answer sentence by sentence: verified against the numbered evidence, its citations checked and completed, while it is
being written or when it is there.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from langchain_core.documents import Document

from langgraph_convcoa.text.citations import MARK, CitationFilter, cited_parts, kept_marks, without_marks
from langgraph_convcoa.text.clean import cut_answer
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import Statement, statements
from langgraph_convcoa.verification.verdicts import Verdict, as_claim, judge
from langgraph_convcoa.verification.verifier import LexicalVerifier, Verifier

_AFTER_STOP = re.compile(rf"((?<![.!?。！？])[.!?。！？]++[\"”’)]*+)((?:\s*+{MARK.replace('(', '(?:', 1)})++)")
_AFTER_COMMA = re.compile(rf"((?<![;,])[;,]++)((?:\s*+{MARK.replace('(', '(?:', 1)})++)\s*+\Z")
_STOP = re.compile(r"(?<![.!?。！？;,])[.!?。！？;,]++[\"”’)]*+\Z")
_POLAR = re.compile(r"\A\W*+(?:yes|no)\W*+", re.IGNORECASE)
_LIST_ITEM = re.compile(r"(?<!\s)[^\S\n]*+\n\s*+(?:(?:[-*•]|\d{1,2}[.)])(?:\s|\Z)|\||```|~~~)")
_NEXT = re.compile(r"(?:[.!?。！？:;…][\"'”’)\]]*(?:\s*\[[\d,;\s–-]+\])*\s+|\n)(?=\S+\s)")
_MOST_MARKS = 3
_PART_OF_A_CLAIM = 0.3
"""Share of a sentence's words above which a piece of evidence that the sentence cites keeps its mark."""
_WORDS = LexicalVerifier()
_NO_CLAIM = Verdict(0.0, False)


@dataclass(frozen=True)
class Checked:
    """A sentence of an answer.

    `before` is the space in front of it; `text` the sentence with the numbers of the evidence that supports it, each where it
    was put; `plain` the same without marks; `claims`: whether it says anything that evidence could support; `cited`: the
    numbers, each with the part of the sentence that it supports.
    """

    before: str
    text: str
    plain: str
    verdict: Verdict
    claims: bool
    cited: Mapping[int, str]
    removed: int = 0
    """Marks of no evidence that were taken out."""
    named: Sequence[int] = ()
    """The numbers of evidence that it was written with, also those that do not support it."""
    block: bool = False
    """A table or a block of code."""

    @property
    def stands(self) -> bool:
        """It is supported, or claims nothing."""
        return self.verdict.supported or not self.claims

    def shown(self, marks: CitationFilter) -> str:
        """The sentence with its marks renumbered; code as it is."""
        before = marks.feed(self.before)
        return before + (marks.verbatim(self.text) if self.block and not self.claims else marks.feed(self.text))


@dataclass(frozen=True)
class Checker:
    """Verifies the sentences of an answer.

    `evidence[n - 1]` is cited as [n]; what was answered in earlier turns (`history`) supports a claim too, but is not cited.
    """

    evidence: Sequence[Document]
    history: Sequence[tuple[str, str]]
    verifier: Verifier
    question: str = ""
    threshold: float | None = None
    confirmed: frozenset[str] = frozenset()
    """Sentences, without marks, that a model has confirmed against what the verifier says of them."""
    _verdicts: dict[str, Verdict] = field(default_factory=dict, compare=False, repr=False)
    _known: dict[str, list[Checked]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _evidence(self) -> Evidence:
        return Evidence.of(self.evidence, self.history)

    def check(self, text: str) -> list[Checked]:
        """Every sentence of a text in order, with what it cites; a sentence that comes again is not judged again."""
        if text not in self._known:
            self._known[text] = self._check(text)
        return self._known[text]

    def _check(self, text: str) -> list[Checked]:
        text = text.strip()
        found = [replace(s, claim="") if _leads_to_list(text, s) else s for s in statements(text)]
        if any(statement.claim and not _is_polar(statement) for statement in found):
            # "Yes." says what the sentences beside it say.
            found = [replace(s, claim="") if _is_polar(s) else s for s in found]
        claims = [as_claim(s.claim, self.question) if s.claim and not s.block else s.claim for s in found]
        self._judge([claim for claim, s in zip(claims, found, strict=True) if claim and not s.block])
        checked: list[Checked] = []
        position = 0
        for n, (statement, claim) in enumerate(zip(found, claims, strict=True)):
            end = statement.end if n + 1 < len(found) else len(text)
            before = text[position : statement.start]
            if statement.block:
                checked.append(self._block(before, statement))
            else:
                verdict = self._verdicts[claim] if claim else _NO_CLAIM
                checked.append(self._checked(before, text[statement.start : end], verdict, bool(claim)))
            position = end
        return checked

    def _judge(self, claims: Sequence[str]) -> None:
        new = [claim for claim in dict.fromkeys(claims) if claim not in self._verdicts]
        self._verdicts.update(zip(new, judge(new, self._evidence, self.verifier, self.threshold), strict=True))

    def _block(self, before: str, block: Statement) -> Checked:
        """A block of code claims nothing; the words of a table must be in the evidence."""
        if not block.claim:
            return Checked(before, block.text, block.text, _NO_CLAIM, False, {}, block=True)
        plain = without_marks(block.text)
        shares = [_share(block.claim, document) for document in self.evidence]
        best = max(range(len(shares)), key=lambda n: shares[n], default=-1)
        whole = _WORDS.support([block.claim], [" ".join(document.page_content for document in self.evidence)])[0]
        supported = whole > _WORDS.threshold
        verdict = Verdict(whole, supported, (best,) * (best >= 0), reason="" if supported else "it is not in the evidence")
        parts = {best + 1: plain} if supported and best >= 0 else {}
        text = plain + "".join(f"\n\n[{number}]" for number in parts)
        return Checked(before, text, plain, verdict, True, parts, block=True)

    def _checked(self, before: str, text: str, verdict: Verdict, claims: bool) -> Checked:
        # A mark belongs to the sentence in front of it, whichever side of the full stop it stands on.
        text = _AFTER_STOP.sub(r"\2\1", text)
        plain = without_marks(text).rstrip()
        if plain in self.confirmed and not verdict.supported:
            verdict = replace(verdict, supported=True)
        given = list(dict.fromkeys(number for _, numbers in cited_parts(text) for number in numbers))
        known = [number for number in given if 0 < number <= len(self.evidence)]
        parts = self._supporting(text, plain, known, verdict, claims)
        shown = _AFTER_COMMA.sub(r"\2\1", text.rstrip())
        if not parts and verdict.supported:
            found = [n + 1 for n in verdict.documents if n < len(self.evidence)][:2]
            parts, shown = dict.fromkeys(found, plain), with_marks(plain, found)
        if plain.endswith(":") or (claims and not verdict.supported):
            parts = {}
        return Checked(
            before, kept_marks(shown, parts, _MOST_MARKS), plain, verdict, claims, parts, len(given) - len(known), known
        )

    def _supporting(self, text: str, plain: str, known: Sequence[int], verdict: Verdict, claims: bool) -> dict[int, str]:
        """Of the numbers that a sentence cites, those that support it or the part that they stand behind, each with that part.

        What claims nothing may point to what it likes.
        """
        parts: dict[int, str] = {}
        for part, numbers in cited_parts(text):
            for number in numbers:
                if number not in known or number in parts:
                    continue
                document = self.evidence[number - 1]
                if not claims or _share(part, document) > _PART_OF_A_CLAIM:
                    parts[number] = part
                elif number - 1 in verdict.documents or _share(plain, document) > _PART_OF_A_CLAIM:
                    parts[number] = plain
        return parts


def _share(claim: str, document: Document) -> float:
    """The share of a claim's words that a document holds, title included."""
    return _WORDS.support([claim], [f"{document.metadata.get('title') or ''} {document.page_content}"])[0]


def _leads_to_list(text: str, statement: Statement) -> bool:
    """Whether a sentence only opens a list, a table or code, which says what it claims: "They played:"."""
    return statement.text.endswith(":") and _LIST_ITEM.match(text, statement.end) is not None


def _is_polar(statement: Statement) -> bool:
    return _POLAR.fullmatch(without_marks(statement.text)) is not None


def with_marks(plain: str, numbers: Sequence[int]) -> str:
    """A sentence with its marks in front of its full stop, so that they are read as a part of it."""
    marks = "".join(f"[{number}]" for number in numbers)
    stop = _STOP.search(plain)
    end = stop.start() if stop else len(plain)
    return f"{plain[:end]} {marks}{plain[end:]}" if marks else plain


class SentenceGate:
    """Shows the sentences of an answer while it is written, each when it is complete and verified.

    After the first sentence that does not stand nothing more is shown: what follows may have to wait for its correction.

    Args:
        checker: Makes the checker when the first sentence has ended.
        show: Puts a piece of the answer into the stream, as a part of the message with the id; None where nobody reads it.
        message_id: The id of the message; a new one by default.
    """

    def __init__(
        self, checker: Callable[[], Checker], show: Callable[[str, str], None] | None = None, message_id: str = ""
    ) -> None:
        self.shown = ""
        self.message_id = message_id or f"run-{uuid.uuid4()}"
        self.streams = show is not None
        self._checker, self._show = checker, show
        self._made: Checker | None = None
        self._marks: CitationFilter | None = None
        self._passed = 0
        self._closed = False
        self._ended = 0

    def feed(self, text: str, *, done: bool = False) -> str:
        """Take the answer as it stands so far; returns what can be shown more."""
        if self._closed:
            return ""
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
            new += piece.shown(self._marks)
            self._passed += 1
        if done or self._closed:
            self._closed = True
            new += self._marks.close()
        self.shown += new
        if new and self._show is not None:
            self._show(new, self.message_id)
        return new


def _complete(text: str) -> str:
    """A text that is still being written, without the word at its end, which may go on."""
    return text[: max(text.rfind(" "), text.rfind("\n"), 0)]
