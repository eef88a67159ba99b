"""The sentences of an answer, and which of them claim something that evidence could support."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from langgraph_convcoa.text.citation_marks import MARK, CitationFilter
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.questions import NEGATIONS
from langgraph_convcoa.text.words import ENDED, LIST_MARK, Sentence, content_tokens, sentences

_MARK = re.compile(rf"(?<!\s)\s*+{MARK}")
_LEADING_MARKS = re.compile(rf"(?:\s*+{MARK})++[.,;]?")
_ITEM = re.compile(r"(\d{1,2})\.\s")
_LAST_NUMBER = re.compile(r"(^\W*|[.:!?]\s+)?(?<!\S)(\d{1,2})\.$")
_LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)")
_DECORATION = re.compile(rf"\*\*|__|`|^[^\S\n]*+(?:#++|>|{LIST_MARK}|\|)\s+", re.MULTILINE)

_BLOCK = re.compile(
    r"^[^\S\n]*+(?P<fence>```|~~~)[^\n]*+\n(?:(?![^\S\n]*+(?P=fence))[^\n]*+\n)*+(?:[^\S\n]*+(?P=fence)[^\n]*+|[^\n]*+\Z)"
    r"|^[^\S\n]*+\|[^\n]*+(?:\n[^\S\n]*+\|[^\n]*+)++",
    re.MULTILINE,
)
_CELLS = re.compile(r"[|\n]|:?-{2,}:?")

_EVIDENCE = (
    r"(?:passages?|documents?|documentation|evidence|sources?|excerpts?|texts?|context|information|materials?|articles?|"
    r"pages?|search results?|results|references|data|snippets?|knowledge base|conversation|records?|contents?)"
)
_GIVEN = (
    r"(?:(?:provided|given|available|retrieved|supplied|above|current|present|numbered|relevant|cited|other|same|"
    r"two|three)\s+)*"
)
_THE = rf"(?:the|this|these|those|my|your|our|any|either|none of the|neither of the|no)\s+{_GIVEN}"
_SOURCE = rf"(?:{_THE}{_EVIDENCE}|(?:provided|given|available|retrieved)\s+{_EVIDENCE}|passages? \d+|i|we)"
_IN_SOURCE = rf"(?:in|by|within|from|across|among|on)\s+{_THE}(?:\w+\s+)?{_EVIDENCE}"
_TELL = (
    r"(?:say|said|state|mention|tell|told|give|given|specif\w+|provid\w+|contain|includ\w+|explain\w*|describ\w+|list|listed|"
    r"cover|covered|discuss\w*|address\w*|indicat\w+|name|named|detail\w*|show|shown|hold|stat\w+|reveal\w*|report\w*|"
    r"confirm\w*|"
    r"define|defined|offer|clarif\w+|find|found|know|have|see|locate|determine|answer|identif\w+|mentioned|note|elaborate|"
    r"suggest|compare|specify|present|make clear|go into|speak|refer)s?"
)
_NOT = rf"(?:{NEGATIONS}|unable to|fails? to|lacks?)"
_ADVERB = r"(?:\s+(?:\w+ly|actually|further|also|themselves|itself|yet|currently|seem to|appear to|be able to|any|able to|"
_ADVERB += r"sufficient|enough|specific))*"
_ADVERBS = r"(?:\s+(?:been|explicitly|directly|specifically|clearly|further))*"
_SILENT = [
    # The passages do not say when ...; I could not find ...
    rf"{_SOURCE}\b[^.;,]{{0,40}}?\s+(?:(?:do|does|did|could|can|is|are|was|were|have|has|am|'m|would)\s*)?"
    rf"(?:{_NOT}){_ADVERB}\s+(?:been\s+)?{_TELL}\b",
    # There is no information about ...
    r"there (?:is|are|was|were)(?: no|n't any| not any| not enough| insufficient)(?: (?:specific|further|other|additional|"
    r"direct|explicit|more|detailed|clear|such))* (?:information|mention|details?|data|answer|description|indication|"
    r"passages?|documents?)\b",
    # No passage says ...; nothing in the documents tells ...; no information was found
    rf"(?:no(?:ne|thing)?|neither)\b[^.;,]{{0,30}}?\b(?:{_EVIDENCE}|mention|details?)\b[^.;,]{{0,30}}?\b{_TELL}\b",
    # The passages name no builder; the documents are silent
    rf"{_THE}{_EVIDENCE} (?:{_TELL}|is|are|has|have) (?:no|nothing|silent)\b",
    # The year is not given in the passages; it is not stated
    rf"[^.;,]*\b(?:is|are|was|were|has|have)(?:\s+not|n't){_ADVERBS}\s+(?:stated|mentioned|given|specified|said|described|"
    rf"explained|provided|named|listed|covered|detailed|discussed|included|found|addressed|available|clear|told|shown|"
    rf"indicated|defined)\s+{_IN_SOURCE}",
    rf"it (?:is|was|has)(?:\s+not|n't){_ADVERBS}\s+(?:stated|mentioned|given|specified|said|clear|told|"
    rf"known from {_THE}{_EVIDENCE})\b",
    r"i (?:have|found|find|see|know) (?:no|nothing)\b",
    r"no(?:thing| answer) was found\b",
]
_SILENCE = re.compile(rf"^(?:{'|'.join(f'(?:{form})' for form in _SILENT)})", re.IGNORECASE)
_OPENER = re.compile(
    r"^(?:(?:yes|no|well|sure|certainly|of course|unfortunately|however|but|though|still|also|and|so|additionally|sorry|"
    r"okay|ok|i'm sorry|i am sorry|apologies|i apologize|i'm afraid|as for [^,]{1,60}|in addition|beyond (?:this|that))"
    # A comma, a dash, a stop or "but" must follow the opener: "No branch was closed" is a claim.
    r"(?:,|\s+[-–—]|\s+but|[!.:;])\s+(?:but\s+|that\s+)?)+",
    re.IGNORECASE,
)
_FRAME = re.compile(
    rf"^(?:(?:according to|based on|per|as (?:stated|described|mentioned|noted) (?:in|by)|from|in) {_THE}(?:\w+ )?{_EVIDENCE}"
    rf"(?:\s+\d+)?(?: (?:provided|given|available|above|i found|i have))?,?\s+"
    rf"|(?!no|any|either){_THE}(?:\w+ )?{_EVIDENCE}(?:\s+\d+)? (?:also )?(?:says?|states?|mentions?|notes?|explains?|"
    rf"indicates?|suggests?|shows?|"
    rf"describes?|reports?|tells? (?:us|you)|confirms?|adds?|specif(?:y|ies)) (?:also )?(?:only )?(?:that )?|"
    rf"the nearest passage is |as an ai[^,]*,\s+)",
    re.IGNORECASE,
)
_CONTRAST = re.compile(
    r"\s*(?:[;—–]|\s-\s|,?\s*\b(?:but|however|though|although|while|whereas|yet|only that|except that|other than that|"
    r"apart from)\b)\s*,?\s*",
    re.IGNORECASE,
)
_LEADING_CONTRAST = re.compile(r"^(?:although|though|while|even though|whereas)\s+([^,]+),\s+(.+)$", re.IGNORECASE | re.DOTALL)

_PLEASANTRY = re.compile(
    r"^\W*(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening|question)|great question|"
    r"thanks?(?: you)?(?: (?:so|very) much)?"
    r"|you're welcome|you are welcome|welcome|sure(?: thing)?|certainly|of course|absolutely|no problem|my pleasure|"
    r"glad to help|"
    r"happy to help|i'm sorry|i am sorry|sorry|my apologies|i apologi[sz]e|i hope (?:this|that) helps|good luck|yes|no|"
    r"okay|ok|i understand|i see|that's right|here you go|you too|have a (?:nice|great|good) \w+|take care|goodbye|bye)"
    r"(?:\s+(?:there|again|for (?:asking|your (?:question|interest|patience|understanding)|the (?:question|confusion)|"
    r"any confusion|that)|to hear that))?\W*$",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"^\W*(?:please\s+)?(?:if you (?:have|need|want|would like|'d like|are|can|could|wish|tell|let|give|share|"
    r"meant?)[^.]*?,?\s*)?"
    r"(?:please\s+)?(?:let me know|feel free|don't hesitate|do not hesitate|just (?:ask|let me know|tell me)|i(?:'d|"
    r" would) be "
    r"(?:happy|glad)|i(?:'m| am) (?:happy|glad|here)(?: to| for)|i can (?:try to |also )?(?:help|look|search|tell|give|"
    r"explain|check|"
    r"provide|answer|find)|how can i help|what (?:can|may) i|would you like|do you (?:want|need)|could you|can you|may i|"
    r"tell me (?:what|which|more|if)|is there anything|anything else|ask me|i hope)\b",
    re.IGNORECASE,
)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|does|do|did|can|could|will|would|should|must|may|might|\w{3,}(?:ed|"
    r"es))\b|n't\b",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(
    r"\b(?:following|these|this|here|below|such as|includ\w+|steps?|ways?|as follows|are|is)\b|^[^\s]+:$", re.IGNORECASE
)
_HEADING_WORDS = 10
_LEAST_WORDS = 5


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of an answer with the citation marks behind it; it is `answer[start:end]`.

    `claim`: its statement, without citation marks, markup, and frames such as "According to the passages,". It is "" if no
    evidence could support it: a greeting, an offer, a question, a heading, code, or a remark that the evidence is silent.
    `block`: whether it is a whole fenced block of code or a whole table. Blocks are neither cut nor marked inside.
    """

    text: str
    start: int
    end: int
    claim: str
    block: bool = False


def statements(text: str) -> list[Statement]:
    r"""The sentences of an answer in order; every character except white space belongs to a sentence.

    Example:
        >>> told = "## The bridge\nIt opened in 1894 [1]. The passages do not say who built it. Shall I look further?"
        >>> [(s.text, s.claim) for s in statements(told)][1:]  # doctest: +NORMALIZE_WHITESPACE
        [('It opened in 1894 [1].', 'It opened in 1894.'), ('The passages do not say who built it.', ''),
         ('Shall I look further?', '')]
        >>> [(s.text, s.block) for s in statements("Call it:\n```\nrows[1]\n```\nIt returns a row.")]
        [('Call it:', False), ('```\nrows[1]\n```', True), ('It returns a row.', False)]
    """
    found: list[Statement] = []
    position = 0
    for start, end in _blocks(text):
        found += _of_prose(text, position, start)
        block = text[start:end]
        cells = flat(_MARK.sub("", _CELLS.sub(" ", block)))
        found.append(Statement(block, start, end, cells if block.lstrip().startswith("|") else "", block=True))
        position = end
    return found + _of_prose(text, position, len(text))


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each table and of each fenced block of code. An open block ends with the text."""
    for match in _BLOCK.finditer(text):
        yield match.start(), match.start() + len(match[0].rstrip())


def renumbered(text: str, numbers: Sequence[int]) -> str:
    r"""Replace each mark [n] of a text by [numbers[n - 1]]. A mark without a number is removed. Blocks are not changed.

    Example:
        >>> renumbered("It fell [2][9], see [1-2]:\n```\nrows[1]\n```", [4, 7])
        'It fell [7], see [4][7]:\n```\nrows[1]\n```'
    """
    marks, shown, position = _Renumbering(numbers), "", 0
    for start, end in _blocks(text):
        shown += marks.feed(text[position:start]) + marks.verbatim(text[start:end])
        position = end
    return shown + marks.feed(text[position:]) + marks.close()


class _Renumbering(CitationFilter):
    """Replaces each mark [n] by the n-th number of a list."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(len(numbers))
        self._numbers = numbers

    def _number(self, number: int) -> int:
        return self._numbers[number - 1] if number in self.available else 0


def _of_prose(text: str, start: int, end: int) -> list[Statement]:
    """The sentences of a part of a text, outside of blocks."""
    spans: list[list[int]] = []
    for a, b in _spans(text[start:end]):
        last = spans[-1] if spans else None
        # Two spans are one sentence if the first has no end mark, or if no space is between them: "Step 1) of", ".csv".
        ended = last and (ENDED.search(_MARK.sub("", text[last[0] : last[1]])) or "\n" in text[last[1] : start + a])
        ended = ended or _ITEM.match(text, start + a)
        if last and not (ended and last[1] < start + a):
            last[1] = start + b
        else:
            spans.append([start + a, start + b])
    return [Statement(text[a:b], a, b, _claim(text[a:b])) for a, b in spans]


def is_sentence(text: str) -> bool:
    """Whether a text looks like a sentence: five words or more, and either a verb or both a capital and a full stop.

    Example:
        >>> is_sentence("It was closed in 1988 by the city."), is_sentence("in 1988, by the city of Dundee")
        (True, False)
    """
    text = text.strip()
    if len(text.split()) < _LEAST_WORDS:
        return False
    return _FINITE.search(text) is not None or (text[0].isupper() and text[-1] in ".!")


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence, line by line."""
    offset = 0
    for line in text.split("\n"):
        found: list[list[int]] = []
        position = 0
        for sentence in listed_sentences(line):
            start, end = sentence.start, sentence.end
            # Skipped text belongs to the sentence before, and so do citation marks after a full stop.
            if found and line[position:start].strip():
                found[-1][1] = start
            marks = _LEADING_MARKS.match(line, start, end)
            if found and marks:
                found[-1][1] = marks.end()
                start = marks.end() + len(line[marks.end() : end]) - len(line[marks.end() : end].lstrip())
            if start < end:
                found.append([start, end])
            position = end
        if line[position:].strip():
            if found:
                found[-1][1] = len(line.rstrip())
            else:
                found.append([len(line) - len(line.lstrip()), len(line.rstrip())])
        yield from ((offset + start, offset + end) for start, end in found)
        offset += len(line) + 1


def listed_sentences(line: str) -> list[Sentence]:
    """The sentences of a line; each number of a list belongs to the item after it.

    Example:
        >>> [one.text for one in listed_sentences("It has three parts: 1. Air 2. Two kinds of fuel 3. Heat")]
        ['It has three parts:', '1. Air', '2. Two kinds of fuel', '3. Heat']
    """
    listed: list[Sentence] = []
    begins, item = -1, 0
    for one in sentences(line):
        begins = one.start if begins < 0 else begins
        first, number = _ITEM.match(one.text), _LAST_NUMBER.search(one.text)
        item = int(first[1]) if first else item
        # A sentence may end with a count. The number of an item follows a stop or a colon, or is one more than the last.
        ends = one.end
        if number and (number[1] is not None or int(number[2]) == item + 1 > 1):
            item, ends = int(number[2]), one.start + number.start(2)
        if text := line[begins:ends].strip():
            listed.append(Sentence(text, begins, begins + len(text)))
        begins = ends if ends < one.end else -1
    if begins >= 0:
        listed.append(Sentence(line[begins:].rstrip(), begins, len(line.rstrip())))
    return listed


def _claim(sentence: str) -> str:
    raw = _MARK.sub("", sentence)
    # The text is put on one line with single spaces: the rules below expect that, and are slow on runs of white space.
    plain = flat(_DECORATION.sub("", _LINK.sub(r"\1", raw)))
    if not content_tokens(plain) and not re.search(r"\b(?:yes|no)\b", plain, re.IGNORECASE):
        return ""
    numbers = any(character.isdigit() for character in plain)
    if _is_heading(raw, plain) and not numbers:
        return ""
    if _PLEASANTRY.match(plain) and not re.match(r"\W*(?:yes|no)\W*$", plain, re.IGNORECASE):
        return ""
    if not numbers and (plain.rstrip("\"'”)*_ ").endswith("?") or _OFFER.match(plain)):
        return ""
    return _told(plain)


def _is_heading(raw: str, plain: str) -> bool:
    stripped = raw.strip()
    if stripped.startswith("#"):
        return True
    short = len(plain.split()) <= _HEADING_WORDS
    if stripped.startswith("**") and stripped.rstrip(":").endswith("**") and short and not _FINITE.search(plain):
        return True
    return (
        plain.endswith(":")
        and not re.search(rf"\b(?:{NEGATIONS})\b", plain)
        and (
            (short and not _FINITE.search(plain))
            or (_LEAD_IN.search(plain) is not None and len(plain.split()) <= 2 * _HEADING_WORDS)
        )
    )


def _told(plain: str) -> str:
    """A sentence without its frame ("According to ...") and without clauses that say that the evidence is silent."""
    opener = _OPENER.match(plain)
    body = plain[opener.end() :] if opener else plain
    if _SILENCE.match(body):
        return _rest(_CONTRAST.split(body)[1:])
    if (turned := _LEADING_CONTRAST.match(plain)) and _SILENCE.match(turned[1]):
        return _told(turned[2])
    # "It opened in 1894, but the passages do not say who built it."
    parts = _CONTRAST.split(plain)
    if len(parts) > 1 and any(_SILENCE.match(part) for part in parts[1:]):
        return ", ".join(part for part in parts if not _SILENCE.match(part))
    frame = _FRAME.match(body)
    return body[frame.end() :] if frame else plain


def says_gap(sentence: str) -> bool:
    """Whether a sentence says that the evidence holds no answer, such as "The passages do not say when."."""
    plain = flat(_DECORATION.sub("", _LINK.sub(r"\1", _MARK.sub("", sentence))))
    opener = _OPENER.match(plain)
    return _SILENCE.match(plain[opener.end() :] if opener else plain) is not None


def _rest(parts: list[str]) -> str:
    """The clauses after a clause that says that the evidence is silent; "" if they say nothing by themselves."""
    told = ", ".join(part for part in parts if not _SILENCE.match(_OPENER.sub("", part)) and not _OFFER.match(part))
    return told if len(content_tokens(told)) > 1 and _FINITE.search(told) else ""
