"""Checks an answer sentence by sentence: verifies it, corrects its citations, and streams what is supported."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from langchain_core.documents import Document

from langgraph_convcoa.text.citations import MARK, CitationFilter, cited_parts, kept_marks, without_marks
from langgraph_convcoa.text.clean import cut_answer
from langgraph_convcoa.text.words import CLOSING, LIST_MARK, STOPS
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import Statement, statements
from langgraph_convcoa.verification.verdicts import Verdict, as_claim, judge
from langgraph_convcoa.verification.verifier import LexicalVerifier, Verifier

_MARKS = rf"((?:\s*+{MARK.replace('(', '(?:', 1)})++)"
_AFTER_STOP = re.compile(rf"((?<![{STOPS}])[{STOPS}]++[{CLOSING}]*+){_MARKS}")
_AFTER_COMMA = re.compile(rf"((?<![;,])[;,]++){_MARKS}\s*+\Z")
_STOP = re.compile(rf"(?<![{STOPS};,])[{STOPS};,]++[{CLOSING}]*+\Z")
_POLAR = re.compile(r"\A\W*+(?:yes|no)\W*+", re.IGNORECASE)
_LIST_ITEM = re.compile(rf"(?<!\s)[^\S\n]*+\n\s*+(?:{LIST_MARK}(?:\s|\Z)|\||```|~~~)")
_NEXT = re.compile(rf"(?:[{STOPS}:;…][{CLOSING}]*(?:\s*\[[\d,;\s–-]+\])*\s+|\n)(?=\S+\s)")
_MOST_MARKS = 3
_SHARE_OF_CLAIM = 0.3  # A document keeps its mark if it holds more than this share of the words in front of the mark.
_WORDS = LexicalVerifier()
_NO_CLAIM = Verdict(0.0, False)


@dataclass(frozen=True)
class CheckedSentence:
    """A sentence of an answer, or a table or a block of code.

    Attributes:
        before: The white space in front of the sentence.
        text: The sentence with the marks of the evidence that supports it, each where the model put it.
        plain: The sentence without marks.
        claims: Whether it says anything that evidence could support.
        cited: The numbers of its marks, each with the part of the sentence that the document supports.
        removed: Number of marks that named no evidence.
        named: The numbers that the model wrote, also those of documents that do not support it.
        block: Whether it is a table or code.
    """

    before: str
    text: str
    plain: str
    verdict: Verdict
    claims: bool
    cited: Mapping[int, str]
    removed: int = 0
    named: Sequence[int] = ()
    block: bool = False

    @property
    def stands(self) -> bool:
        """Whether it is supported or claims nothing."""
        return self.verdict.supported or not self.claims

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
        self._judge([claim for claim, s in zip(claims, found, strict=True) if claim and not s.block])
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

    def _judge(self, claims: Sequence[str]) -> None:
        new = [claim for claim in dict.fromkeys(claims) if claim not in self._verdicts]
        self._verdicts.update(zip(new, judge(new, self._premises, self._verifier, self._threshold), strict=True))

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
        """The marks whose documents support the sentence or the part in front of the mark, each with the supported text.

        A sentence that claims nothing keeps all its marks.
        """
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


class SentenceGate:
    """Streams an answer while the model writes it: each sentence once it is complete and verified.

    Nothing is shown after the first sentence that does not stand, since the second model call may change it.

    Args:
        checker: Verifies the sentences.
        show: Called with each piece of the answer and the id of its message.
        message_id: The id of the message; a new one by default.
    """

    def __init__(self, checker: Checker, show: Callable[[str, str], None], message_id: str = "") -> None:
        self.shown = ""
        self.message_id = message_id or f"run-{uuid.uuid4()}"
        self._checker, self._show = checker, show
        self._marks = CitationFilter(len(checker.evidence))
        self._passed = self._ended = 0
        self._closed = False

    def feed(self, text: str, *, done: bool = False) -> None:
        """Take the answer so far; its marks have the numbers of the evidence."""
        if self._closed:
            return
        text = cut_answer(text)
        ended = max((match.end() for match in _NEXT.finditer(text)), default=0)
        if ended == self._ended and not done:
            # The pieces are small: no sentence has ended since the last call.
            return
        self._ended = ended
        # The last sentence may be incomplete, and so may its last word.
        checked = self._checker.check(text) if done else self._checker.check(_without_last_word(text))[:-1]
        new = ""
        for sentence in checked[self._passed :]:
            if not sentence.stands or not any(map(str.isalnum, text)):
                self._closed = True
                break
            new += sentence.shown(self._marks)
            self._passed += 1
        if done or self._closed:
            self._closed = True
            new += self._marks.close()
        if new:
            self.shown += new
            self._show(new, self.message_id)


def _without_last_word(text: str) -> str:
    return text[: max(text.rfind(" "), text.rfind("\n"), 0)]
