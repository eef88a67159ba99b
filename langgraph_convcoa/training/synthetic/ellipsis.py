"""Rules that shorten a question: they leave out the parts that earlier turns say."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

_PRONOUN_WORDS = re.compile(r"\b(he|his|him|she|her|hers|it|its|they|their|them)\b", re.IGNORECASE)
_FORMS = {
    "he": ("he", "his", "him"),
    "she": ("she", "her", "her"),
    "it": ("it", "its", "it"),
    "they": ("they", "their", "them"),
}
_CLASS = {word: subject for subject, forms in _FORMS.items() for word in forms} | {"hers": "she"}
_PREPOSITION = r"(?:of|in|for|about|from|by|at|on|to|with|within|against|under|during)"
_KIND_OF = re.compile(
    r"\b(?:is|was|are|were|refers to) (?:an?|the|one of the)\s+((?:[\w'-]+\s+){0,5}?[\w'-]+)"
    r"(?=\s+(?:of|in|on|by|that|which|who|where|for|from|published|located|designed|used|created|between|with|to)\b|[,.;:(])"
)
_AUXILIARY = re.compile(
    r"^(?:When|Where|Why|How)\s+(did|was|were|is|are|does|do|has|have|had|can|could|would|will)\b", re.IGNORECASE
)
_WH = ("When", "Where", "Why", "How")
_YEAR = re.compile(r"\b(in|of|by|for|since|after|before) ((?:1[0-9]|20)\d\d)\b")
_CAPITALISED = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+(?: (?:of |the |de |and )?[A-Z][\w'-]+)*")


@dataclass(frozen=True)
class Topic:
    """The subject of an article, and how a question may refer to it."""

    name: str  # The title without the text in brackets.
    aliases: tuple[str, ...]  # Ways in which a question names it, the longest first.
    subject: str  # The pronoun that stands for it: he, she, it or they.
    kind: str  # A noun for it, such as "singer"; may be empty.

    @classmethod
    def of(cls, title: str, passages: Sequence[str]) -> Topic:
        """The topic of an article, with the pronoun and the noun that the text of the article uses."""
        title = unquote(title)
        name = re.sub(r"\s*\(.*?\)\s*", " ", title).strip() or title
        counts = Counter(_CLASS[match.lower()] for text in passages[:20] for match in _PRONOUN_WORDS.findall(text))
        person = max(("he", "she"), key=lambda subject: counts[subject])
        if counts[person] > counts["it"] + counts["they"]:
            subject = person
        else:
            subject = "they" if name.endswith("s") and counts["they"] > counts["it"] else "it"
        parts = [part for part in name.split() if len(part) > 3 and part[0].isupper()]
        names = {name, plain(name)}
        if subject in ("he", "she") and 1 < len(name.split()) < 5:
            names |= {form for part in parts for form in (part, plain(part))}
        names |= {f"the {form}" for form in names} | {form.removeprefix("The ") for form in names}
        found = _KIND_OF.search(passages[0][:400]) if passages else None
        words = found.group(1).split() if found else []
        kind = words[-1] if words and words[-1].isalpha() and words[-1].islower() and len(words[-1]) > 3 else ""
        return cls(name, tuple(sorted(names, key=len, reverse=True)), subject, kind)

    def named(self, text: str) -> re.Match[str] | None:
        """The first place where a text names the topic, or None."""
        return self._pattern.search(text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(re.escape(alias) for alias in self.aliases)
        return re.compile(rf"(?<![\w.])(?:{names})(?:'s|’s)?(?![\w-]|\.\d)", re.IGNORECASE)


def plain(text: str) -> str:
    """The text without accents."""
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def pronoun(question: str, topic: Topic) -> str | None:
    """The question with a pronoun instead of the topic, or None if it does not name the topic."""
    found = topic.named(question)
    if found is None:
        return None
    subject, possessive, thing = _FORMS[topic.subject]
    if found.group().endswith(("'s", "’s")):
        form = possessive
    else:
        before = question[: found.start()].rstrip().lower()
        after_preposition = re.search(rf"\b{_PREPOSITION}$", before) is not None
        form = (
            thing
            if after_preposition
            or not re.search(r"\b(did|do|does|was|were|is|are|has|had|have|can|that|when|while|if)$", before)
            else subject
        )
    return _replaced(question, found, form)


def dropped(question: str, topic: Topic) -> str | None:
    """The question without the prepositional phrase of the topic, or None if it has none."""
    found = topic.named(question)
    if found is None:
        return None
    phrase = re.search(rf"\s+{_PREPOSITION}\s+(?:the\s+)?$", question[: found.start()])
    if phrase is None or found.group().endswith(("'s", "’s")):
        return None
    left = question[: phrase.start()] + question[found.end() :]
    return left if len(left.split()) > 3 else None


def definite(question: str, topic: Topic) -> str | None:
    """The question with "the city" or "the singer" instead of the topic, or None if the topic has no noun."""
    found = topic.named(question)
    if found is None or not topic.kind:
        return None
    ending = "'s" if found.group().endswith(("'s", "’s")) else ""
    return _replaced(question, found, f"the {topic.kind}{ending}")


def entity_pronoun(question: str, earlier: str, rng: random.Random) -> str | None:
    """The question with "it", "that" or "they" instead of a name from earlier turns, or None if it has no such name."""
    shared = [match for match in _CAPITALISED.finditer(question) if match.group() in earlier]
    if not shared:
        return None
    found = max(shared, key=lambda match: len(match.group()))
    return _replaced(question, found, rng.choice(("it", "that", "this", "they")))


def other_question_word(question: str, rng: random.Random) -> tuple[str, str] | None:
    """A follow-up question of one word, such as "Why?", and the same question in full."""
    if _AUXILIARY.match(question) is None:
        return None
    first, rest = question.split(maxsplit=1)
    word = rng.choice([word for word in _WH if word.lower() != first.lower()])
    form = rng.choice((f"{word}?", f"{word}?", f"And {word.lower()}?", f"{word} was that?", f"but {word.lower()}?"))
    return form, f"{word} {rest}"


def other_year(question: str, rng: random.Random) -> tuple[str, str] | None:
    """A follow-up question about another year, and the same question in full."""
    found = _YEAR.search(question)
    if found is None:
        return None
    year = str(int(found.group(2)) + rng.choice((-10, -5, -2, -1, 1, 2, 5, 10)))
    form = rng.choice(("And in {}?", "in {}?", "What about {}?", "what about {}?", "How about that in {}?", "{}?"))
    return form.format(year), question[: found.start(2)] + year + question[found.end(2) :]


def _replaced(question: str, found: re.Match[str], form: str) -> str:
    if found.start() == 0:
        form = form[0].upper() + form[1:]
    return question[: found.start()] + form + question[found.end() :]
