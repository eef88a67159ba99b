"""Splitter of compound questions, conservative: a wrong split is worse than none."""

from __future__ import annotations

import re

from langgraph_convcoa.text.questions import PERSONAL, WH
from langgraph_convcoa.text.words import content_words

_WH = rf"(?:(?:in|on|at|by|for|to|from|with|of) (?:what|whom|which)|{WH})"
_ASKS = rf"(?:{_WH}|is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)"
_MARK = re.compile(r"(?<=[?？؟;])\s*(?=\S)")
_JOINT = re.compile(rf"(?:,|;)?\s+(?:and|as well as)\s+(?:also\s+)?(?={_WH}\b)", re.IGNORECASE)
_STARTS = re.compile(rf"^(?:and\s+|also\s+|please\s+|then\s+)*{_ASKS}\b", re.IGNORECASE)
_LEAD = re.compile(r"^(?:and|also|then)\s+(?=\w)", re.IGNORECASE)
_BARE_WH = re.compile(rf"^(?:{WH})\W*$", re.IGNORECASE)
_COMPARE = re.compile(
    r"^(?:please\s+)?(?:compare|contrast)\s+(?P<a>[^,?]{2,80}?)\s+(?:and|with|to|against|versus|vs\.?)\s+(?P<b>[^,?]{2,80}?)[.?!]*$",
    re.IGNORECASE,
)
_DIFFERENCE = re.compile(
    r"^(?:what (?:is|are) the )?differences? between (?P<a>[^,?]{2,80}?) and (?P<b>[^,?]{2,80}?)[.?!]*$", re.IGNORECASE
)
_JOINT_WORD = re.compile(r"\b(?:and|or|with|to)\b", re.IGNORECASE)
_PRONOUN = re.compile(rf"\b(?:{PERSONAL}|this|that|these|those|one)\b", re.IGNORECASE)
_POSSESSIVE = frozenset(["its", "their", "his"])
_HUMAN = frozenset(["he", "him", "his", "she", "her"])
# "When was X founded", "What is the X", "Who wrote X": the auxiliary or the verb stands before what the pronoun may mean.
_NAME = r"(?:[A-Z0-9][\w'’.-]*|(?:of|the|de|von|van)(?=\s+[A-Z0-9]))"
_SUBJECT = re.compile(
    r"^(?i:in (?:what|which) \w+|who|when|where|why|how(?: \w+)?|what|which(?: \w+)?)"
    r"\s+(?:is|are|was|were|did|does|do|has|have|had|will|can)\s+"
    rf"(?P<subject>(?:the |a |an )?{_NAME}(?:\s+{_NAME})*)(?=\s|[?,.]|$)(?!\s+and\b)"
)
# "What is sparsemax?": all that follows is the name.
_DEFINED = re.compile(r"^what (?:is|are|was|were) (?P<subject>(?:the |a |an )?[\w'’-]+(?: [\w'’-]+){0,2})\W*$", re.IGNORECASE)
_PASSIVE = re.compile(
    r"^(?:in (?:what|which) \w+|when|where|why|how)\s+(?:is|are|was|were)\s+(?P<subject>the \w+(?: \w+){0,4}?)"
    r" (?:\w+ed|born|known|shown|held|made|built|found|written|given|taken|sold|lost|won|led|set)\W*$",
    re.IGNORECASE,
)
_OBJECT_OF = re.compile(
    r"^who\s+[a-z]+(?:ed|t|te|de|nd|ke|n)\s+(?P<subject>(?:the |a |an )?[A-Z0-9][\w'’.-]*(?:\s+[A-Z0-9][\w'’.-]*)*)\W*$",
    re.IGNORECASE,
)


def split_question(question: str, limit: int = 6) -> list[str]:
    """The sub-questions of a question, in order; the question itself where it has no certain seam.

    Seams are a question mark inside the text, "and" before a question word where both sides are whole questions, and
    "compare X and Y" / "the difference between X and Y". A pronoun of a later part is replaced by the name that the part
    before asks about, where that is plain. More parts than `limit` are left together in the last one.

    Example:
        >>> split_question("When was MIT founded and who founded it?")
        ['When was MIT founded?', 'Who founded MIT?']
        >>> split_question("Who sang rock and roll with Simon and Garfunkel?")
        ['Who sang rock and roll with Simon and Garfunkel?']
        >>> split_question("Compare Hopfield networks and BM25")
        ['What is Hopfield networks?', 'What is BM25?']
    """
    question = " ".join(question.split())
    if limit <= 1 or len(question) > 2_000:
        return [question]
    compared = _COMPARE.match(question) or _DIFFERENCE.match(question)
    if compared and not any(_JOINT_WORD.search(compared[name]) for name in ("a", "b")):
        pair = [f"What is {compared[name].strip()}?" for name in ("a", "b")]
        return pair if all(content_words(part) for part in pair) else [question]
    parts = [piece for whole in _whole_questions(question) for piece in _joined(whole)]
    if len(parts) > limit:
        parts = [*parts[: limit - 1], " ".join(parts[limit - 1 :])]
    resolved = _resolved(parts)
    return resolved if len(resolved) > 1 else [question]


def _whole_questions(question: str) -> list[str]:
    """Cut after inner question marks; what is no question (a remark before or after) stays with its neighbour."""
    whole: list[str] = []
    remark = ""
    for piece in filter(None, map(str.strip, _MARK.split(question))):
        if piece.endswith(("?", "？", "؟")) and content_words(piece):
            whole.append(f"{remark} {piece}".strip())
            remark = ""
        else:
            remark = f"{remark} {piece}".strip()
    if remark and whole and not _STARTS.match(remark):
        whole[-1] = f"{whole[-1]} {remark}"
    elif remark:
        whole.append(remark)
    return whole or [question]


def _joined(question: str) -> list[str]:
    """Cut "Q1 and Q2" where both sides begin as questions and each asks about something."""
    parts: list[str] = []
    rest = question
    while seam := next(
        (match for match in _JOINT.finditer(rest) if _is_seam(rest[: match.start()], rest[match.end() :])), None
    ):
        parts.append(_as_question(rest[: seam.start()]))
        rest = rest[seam.end() :]
    return [*parts, _as_question(rest)] if parts else [question]


def _is_seam(left: str, right: str) -> bool:
    # "How and why did X ...": a bare question word is no question. "the man who won and who lost": the left side must begin as
    # one, and a relative clause before the seam shows that the right side may be another clause of it.
    bare = _BARE_WH.match(left.strip()) or _BARE_WH.match(right.strip())
    if bare or not _STARTS.match(left.strip()) or not content_words(left):
        return False
    inner = re.search(rf"\w\s+(?:that|{_WH})\b", left[1:], re.IGNORECASE)
    return not inner and len(right.split()) >= 2


def _as_question(text: str) -> str:
    text = _LEAD.sub("", text.strip(" ,;")).strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith(("?", ".", "!", "？", "؟")) else f"{text}?"


def _resolved(parts: list[str]) -> list[str]:
    """Put the name that one part asks about in the place of the pronoun of the next; what stays unclear is joined again."""
    resolved: list[str] = []
    subject, is_object = "", False
    for part in parts:
        found = list(_PRONOUN.finditer(part))
        if not found:
            match = _PASSIVE.match(part) or _SUBJECT.match(part) or _DEFINED.match(part)
            is_object = match is None
            match = match or _OBJECT_OF.match(part)
            subject = match["subject"].strip() if match else ""
            resolved.append(part)
        elif len(found) == 1 and _may_mean(part, found[0], subject, is_object):
            name = f"{subject}'s" if found[0].group().lower() in _POSSESSIVE else subject
            resolved.append(part[: found[0].start()] + name + part[found[0].end() :])
        elif resolved:
            resolved[-1] = f"{resolved[-1]} {part}"
        else:
            resolved.append(part)
    return resolved


def _may_mean(part: str, pronoun: re.Match[str], subject: str, is_object: bool) -> bool:
    word = pronoun.group().lower()
    if not subject or word in ("this", "that", "these", "those", "one", "her", "hers", "theirs"):
        return False
    if any(word[:1].isupper() and word != "I" for word in part.split()[1:]):
        return False  # the part names something of its own, which its pronoun may mean
    # Of "Who wrote Hamlet?" only "it" is Hamlet; and "When was it?" asks about the event, not about the name.
    return not (is_object and word in _HUMAN) and bool(content_words(part))
