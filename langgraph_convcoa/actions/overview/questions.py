"""The English questions about a collection that are recognised without a model. All of them name the collection.

A question must match a pattern as a whole. One word more makes it an ordinary question.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from langgraph_convcoa.text.clean import flat

Kind = Literal["list", "count", "topics"]
_LONGEST = 200
_PLACE = r"(?:this|the|your|my|our) (?:document )?(?:collection|corpus|knowledge base)"
_ALL = r"(?:documents?|docs?|files?|pdfs?)"
_SORTS = r"(?:documents?|docs?|files?|pdfs?|papers?|reports?|articles?|notes|texts)"
"""The last five may also name parts of a text. They need a place, an owner, or titles with the words of the question."""
_OWNED = rf"(?:(?:do|can) (?:you|we|i) (?:have|search)(?: here| in {_PLACE})?|are (?:here|in here|in {_PLACE})|did i upload)"
_THE = r"(?:all )?(?:of )?(?:the |my |your |our |these )?"
_PATTERNS: list[tuple[Kind, str]] = [
    ("list", rf"what is (?:in here|in {_PLACE}|{_PLACE} about)|what (?:does|do) {_PLACE} (?:contain|cover|have)"),
    ("list", rf"what (?:is|are) (?:in )?(?:the|my|your|our|these) {_ALL} about|(?:which|what) {_ALL} (?:are there|exist)"),
    ("list", rf"(?:list|show(?: me)?|name|give me) {_THE}{_ALL}(?: (?:that )?(?:you|we|i) have| in {_PLACE})?"),
    ("list", rf"(?:which|what) {_SORTS} {_OWNED}"),
    (
        "list",
        rf"(?:(?:which|what) {_SORTS} (?:are|talk)|(?:list|show(?: me)?) {_THE}{_SORTS}) (?:about|on|from) (?P<about>.+)",
    ),
    ("list", rf"(?:(?:is|are) there|do you have) (?:an? |any )?{_SORTS} (?:about|on) (?P<about>.+)"),
    ("count", rf"how many {_ALL} (?:are there|exist)|how (?:large|big) is {_PLACE}"),
    ("count", rf"how many {_SORTS} (?:{_OWNED}|(?:does|do) {_PLACE} (?:have|contain))"),
    ("count", rf"(?:which|what) (?:file|document) (?:types|formats|kinds) (?:{_OWNED}|are there)"),
    ("topics", rf"what are the (?:main |key )?topics(?: (?:of|in) (?:{_PLACE}|the documents)| here)?"),
    ("topics", rf"(?:which|what) topics do(?:es)? (?:{_PLACE}|the documents) cover"),
]
_FORMS = [(kind, re.compile(pattern)) for kind, pattern in _PATTERNS]
_POLITE = re.compile(r"^(?:please |(?:can|could) you (?:please )?)|,? please$")
_INPUT = re.compile(r"(list|count|topics)\b[\s:]*(?:from )?(\d{1,3}\b(?!\d))?(.*)", re.IGNORECASE | re.DOTALL)


class Wanted(NamedTuple):
    """A question about a collection: `words` that the documents must have, and the number of the `first` one to list."""

    kind: Kind
    words: str = ""
    first: int = 1


def read_question(question: str) -> Wanted | None:
    """What a question asks of the collection; None for an ordinary question.

    Example:
        >>> read_question("How many files do I have?"), read_question("Which documents are about the Lark-2?").words
        (Wanted(kind='count', words='', first=1), 'the lark-2')
        >>> read_question("How many articles does the constitution have?")
    """
    if len(question) > _LONGEST:
        return None
    text = re.sub(r"\bwhat's\b", "what is", flat(question).lower().replace("’", "'")).rstrip(" ?!.")
    text = _POLITE.sub("", text)
    for kind, pattern in _FORMS:
        if found := pattern.fullmatch(text):
            return Wanted(kind, found.groupdict().get("about") or "pdf" * bool(re.search(r"\bpdfs?\b", text)))
    return None


def read_input(text: str) -> Wanted | None:
    """What the planner asks for: "list", "list 21", "list WORDS", "count WORDS" or "topics"; None for titles.

    Example:
        >>> read_input("list 21"), read_input("count: reports 2023"), read_input("BM25")
        (Wanted(kind='list', words='', first=21), Wanted(kind='count', words='reports 2023', first=1), None)
    """
    if (found := _INPUT.fullmatch(text.strip())) is None:
        return None
    kind: Kind = found[1].lower()  # type: ignore[assignment]
    return Wanted(kind, found[3].strip(), max(1, int(found[2] or 1)))
