"""Splits compound questions only if that is safe: a wrong split is worse than no split."""

from __future__ import annotations

import re

from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.questions import PERSONAL, WH
from langgraph_convcoa.text.words import content_words

_WH = rf"(?:(?:in|on|at|by|for|to|from|with|of) (?:what|whom|which)|{WH})"
_IS = "is|are|was|were|do|does|did|has|have|had|can|could|will|would|should"
_END = re.compile(r"(?<=[?？؟;])\s*(?=\S)")
_JOINT = re.compile(rf"[,;]?\s+(?:and|as well as)\s+(?:also\s+)?(?={_WH}\b)", re.IGNORECASE)
_ASKS = re.compile(rf"^(?:(?:and|also|please|then)\s+)*(?:{_WH}|{_IS})\b", re.IGNORECASE)
_LEAD = re.compile(r"^(?:and|also|then)\s+(?=\w)", re.IGNORECASE)
_BARE_WH = re.compile(rf"^\W*(?:{WH})\W*$", re.IGNORECASE)
_CLAUSE = re.compile(rf"\w\s+(?:that|{_WH})\b", re.IGNORECASE)
_COMPARED = re.compile(
    r"^(?:(?:please\s+)?(?:compare|contrast)|(?:what (?:is|are) the )?differences? between)\s+(?P<a>[^,?]{2,80}?)"
    r"\s+(?:and|with|to|against|versus|vs\.?)\s+(?P<b>[^,?]{2,80}?)[.?!]*$",
    re.IGNORECASE,
)
_JOINT_WORD = re.compile(r"\b(?:and|or|with|to)\b", re.IGNORECASE)
_PRONOUN = re.compile(rf"\b(?:{PERSONAL}|this|that|these|those|one)\b", re.IGNORECASE)
_THINGS, _PEOPLE = frozenset(["it", "its", "they", "them", "their"]), frozenset(["he", "him", "his", "she"])
# The subject follows the verb: a name, or the rest of the question without a participle ("When was the plant closed?").
_NAME = r"(?:[A-Z0-9][\w'’.-]*|(?:of|the|de|von|van)(?=\s+[A-Z0-9]))"
_SUBJECT = re.compile(
    rf"^(?i:(?:in )?(?:{WH})(?: \w+)? (?:{_IS})|who (?P<did>[a-z]+(?:ed|t|te|de|nd|ke|n|w))) "
    rf"(?P<subject>(?i:the |a |an )?(?:{_NAME}(?:\s+{_NAME})*(?=[\s?,.]|$)(?!\s+and\b)"
    r"|[\w'’-]+(?: [\w'’-]+){0,3}?(?=(?: \w+(?:ed|en|wn|rn|lt|ade|eld|old|und))?\W*$)))"
)


def split_question(question: str, limit: int = 6) -> list[str]:
    """Split a question at its seams into sub-questions, in order. A question without a seam stays whole.

    Seams are a question mark inside the text, "and" before a question word if both sides are whole questions, and
    "compare X and Y" / "the difference between X and Y". A pronoun in a later part is replaced by the subject of an earlier
    part. If there are more parts than `limit`, the last one holds the rest.

    Example:
        >>> split_question("When was MIT founded and who founded it?")
        ['When was MIT founded?', 'Who founded MIT?']
        >>> split_question("Who sang rock and roll with Simon and Garfunkel?")
        ['Who sang rock and roll with Simon and Garfunkel?']
        >>> split_question("Compare Hopfield networks and BM25")
        ['What is Hopfield networks?', 'What is BM25?']
    """
    question = flat(question)
    if limit <= 1 or len(question) > 2_000:
        return [question]
    compared = _COMPARED.match(question)
    if compared and not any(map(_JOINT_WORD.search, compared.groups())):
        pair = [f"What is {name.strip()}?" for name in compared.groups()]
        return pair if all(map(content_words, pair)) else [question]
    parts = [piece for whole in _whole_questions(question) for piece in _joined(whole)]
    if len(parts) > limit:
        parts = [*parts[: limit - 1], " ".join(parts[limit - 1 :])]
    resolved = _resolved(parts)
    return resolved if len(resolved) > 1 else [question]


def _whole_questions(question: str) -> list[str]:
    """Cut after inner question marks. A remark before or after a question stays with it."""
    whole: list[str] = []
    remark = ""
    for piece in filter(None, map(str.strip, _END.split(question))):
        remark = f"{remark} {piece}".strip()
        if piece.endswith(("?", "？", "؟")) and content_words(piece):
            whole.append(remark)
            remark = ""
    if remark and whole and not _ASKS.match(remark):
        whole[-1] = f"{whole[-1]} {remark}"
    elif remark:
        whole.append(remark)
    return whole or [question]


def _joined(question: str) -> list[str]:
    """Cut "Q1 and Q2" if both sides begin as questions and each asks about something."""
    parts: list[str] = []
    rest = question
    while seam := next(
        (match for match in _JOINT.finditer(rest) if _is_seam(rest[: match.start()], rest[match.end() :])), None
    ):
        parts.append(_as_question(rest[: seam.start()]))
        rest = rest[seam.end() :]
    return [*parts, _as_question(rest)] if parts else [question]


def _is_seam(left: str, right: str) -> bool:
    # "How and why did X ...": a bare question word is no question. In "Who is the man who won and who lost?", the right side
    # may be a clause of the left one.
    whole = _ASKS.match(left) and content_words(left) and not _CLAUSE.search(left[1:])
    return bool(whole) and len(right.split()) >= 2 and not _BARE_WH.match(left) and not _BARE_WH.match(right)


def _as_question(text: str) -> str:
    text = _LEAD.sub("", text.strip(" ,;")).strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith(("?", ".", "!", "？", "؟")) else f"{text}?"


def _resolved(parts: list[str]) -> list[str]:
    """Replace the pronoun of a part by the subject of an earlier part. An unclear part is joined to the part before."""
    resolved: list[str] = []
    asked: re.Match[str] | None = None
    for part in parts:
        found = list(_PRONOUN.finditer(part))
        name = _meant(part, found, asked)
        if not found or not resolved:
            resolved.append(part)
        elif name:
            resolved.append(part[: found[0].start()] + name + part[found[0].end() :])
        else:
            resolved[-1] = f"{resolved[-1]} {part}"
        asked = asked if found else _SUBJECT.match(part)
    return resolved


def _meant(part: str, pronouns: list[re.Match[str]], asked: re.Match[str] | None) -> str:
    """What the only pronoun of a part stands for, or ""."""
    # If a part has a name, its pronoun may stand for that name. "When was it?" asks about the event, not the subject.
    if (
        asked is None
        or len(pronouns) != 1
        or not content_words(part)
        or any(w[:1].isupper() and w != "I" for w in part.split()[1:])
    ):
        return ""
    word = pronouns[0].group().lower()
    # In "Who wrote Hamlet?", Hamlet is no person.
    if word not in _THINGS and (word not in _PEOPLE or asked["did"]):
        return ""
    return asked["subject"] + "'s" * (word in ("its", "their", "his"))
