"""Synthetic conversations from single-turn questions over titled articles, and the rules that shorten their questions.

A conversation has a few earlier questions of one article with their answers, and a question that needs them. Its rewrite is
the same question in full. The rules leave out those parts of a question that earlier turns already say.
"""

from __future__ import annotations

import random
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

import numpy as np

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.words import sentences
from langgraph_convcoa.training.data import TrainingData, TrainingExample, add_passages

Turn = tuple[str, str]

_TURNS = {1: 0.35, 2: 0.28, 3: 0.2, 4: 0.11, 5: 0.06}  # Number of earlier turns, with its share.
_NEAR = 12  # Earlier turns are drawn from at most this many questions of the article, the nearest before the question.
_UNNAMED = 0.25
_LONG_ANSWER = 0.4
_NO_ANSWER = 0.1
_TEXTS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("synthetic.toml").read_text(encoding="utf-8"))
_KINDS: dict[str, float] = _TEXTS["kinds"]
_PRONOUN_WORDS = re.compile(r"\b(he|his|him|she|her|hers|it|its|they|their|them)\b", re.IGNORECASE)
_FORMS: dict[str, list[str]] = _TEXTS["pronouns"]
_CLASS = {word: subject for subject, forms in _FORMS.items() for word in forms} | {"hers": "she"}
_PREPOSITION = r"(?:of|in|for|about|from|by|at|on|to|with|within|against|under|during)"
_BEFORE_SUBJECT = re.compile(r"\b(did|do|does|was|were|is|are|has|had|have|can|that|when|while|if)$")
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
    aliases: tuple[str, ...]  # Names of the topic in questions, the longest first.
    subject: str  # The pronoun for the topic: he, she, it or they.
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
    if _is_possessive(found):
        return _replaced(question, found, possessive)
    before = question[: found.start()].rstrip().lower()
    is_subject = _BEFORE_SUBJECT.search(before) and not re.search(rf"\b{_PREPOSITION}$", before)
    return _replaced(question, found, subject if is_subject else thing)


def dropped(question: str, topic: Topic) -> str | None:
    """The question without the prepositional phrase of the topic, or None if it has no such phrase."""
    found = topic.named(question)
    if found is None:
        return None
    phrase = re.search(rf"\s+{_PREPOSITION}\s+(?:the\s+)?$", question[: found.start()])
    if phrase is None or _is_possessive(found):
        return None
    left = question[: phrase.start()] + question[found.end() :]
    return left if len(left.split()) > 3 else None


def definite(question: str, topic: Topic) -> str | None:
    """The question with "the city" or "the singer" instead of the topic, or None if the topic has no noun."""
    found = topic.named(question)
    if found is None or not topic.kind:
        return None
    return _replaced(question, found, f"the {topic.kind}'s" if _is_possessive(found) else f"the {topic.kind}")


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


def _is_possessive(name: re.Match[str]) -> bool:
    return name.group().endswith(("'s", "’s"))


def _replaced(question: str, found: re.Match[str], form: str) -> str:
    if found.start() == 0:
        form = form[0].upper() + form[1:]
    return question[: found.start()] + form + question[found.end() :]


@dataclass(frozen=True)
class _Article:
    topic: Topic
    questions: list[Query]
    passages: dict[str, str]


def synthetic_conversations(dataset: Dataset, count: int, *, seed: int = 0) -> list[TrainingExample]:
    """Conversations made from single-turn questions over titled passages.

    About a quarter of the questions do not need the history: half of these keep the topic, and the others change it. Follow-up
    questions that the data lacks have no gold passage. Raises InputError if fewer than two titled articles have questions.
    """
    if count < 1:
        raise InputError(f"The number of conversations to make must be at least 1, not {count}.")
    articles = _articles(dataset)
    if len(articles) < 2:
        raise InputError(
            f"{dataset.name} has questions on {len(articles)} titled article(s), not two: give `title` to passages."
        )
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    places = [(article, place) for article in articles for place in range(1, len(article.questions))]
    named = [article.topic.named(article.questions[place].question) is not None for article, place in places]
    examples: list[TrainingExample] = []
    while len(examples) < count:
        drawn = [spot for spot, names in zip(places, named, strict=True) if names or rng.random() < _UNNAMED] or places
        rng.shuffle(drawn)
        examples += [
            _styled(_example(article, place, articles, rng), rng) for article, place in drawn[: count - len(examples)]
        ]
    return [replace(example, source=f"made of {dataset.name}") for example in examples]


def _articles(dataset: Dataset) -> list[_Article]:
    titles = {str(passage.id): str(passage.metadata.get("title") or "") for passage in dataset.corpus}
    passages: dict[str, dict[str, str]] = {}
    for passage in dataset.corpus:
        passages.setdefault(titles[str(passage.id)], {})[str(passage.id)] = passage.page_content
    questions: dict[str, list[Query]] = {}
    for query in dataset.queries:
        title = next((titles[identity] for identity in query.gold if titles.get(identity)), "")
        if title:
            questions.setdefault(title, []).append(query)
    return [
        _Article(Topic.of(title, list(passages[title].values())), asked, passages[title])
        for title, asked in questions.items()
        if len(asked) > 1
    ]


def _example(article: _Article, place: int, articles: Sequence[_Article], rng: random.Random) -> TrainingExample:
    query, topic = article.questions[place], article.topic
    question, gold = query.question, query.gold
    others = [one for one in articles if one is not article]
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    history = _history(article, place, rng)
    full = _in_full(question, topic)
    made: tuple[str, str] | None = None
    match kind:
        case "self-contained":
            made = (full if topic.named(question) is None and rng.random() < 0.5 else question), full
        case "switch":
            other = rng.choice(others)
            history = _history(other, rng.randrange(1, len(other.questions)), rng)
            # The rewrite must not name the topic (`full`) if the question does not: the history is about another topic.
            made = question, question
        case "return":
            other = rng.choice(others)
            earlier = _history(other, rng.randrange(1, len(other.questions)), rng)
            history = earlier + _named_turns(article, history[-2:], rng)
        case "question word" | "another year":
            made = (other_question_word if kind == "question word" else other_year)(question, rng)
            if made is not None:
                history = _named_turns(article, [*history[-2:], _turn(query, article, rng)], rng)
                made, gold = (made[0], _in_full(made[1], topic)), ()
        case "what about":
            found = topic.named(question)
            if found is not None:
                other = rng.choice([one for one in others if one.topic.subject == topic.subject] or others)
                history = [*history[-2:], _turn(query, article, rng)]
                full = question[: found.start()] + other.topic.name + question[found.end() :]
                made, gold = (rng.choice(_TEXTS["what_about"]).format(other.topic.name), full), ()
        case "clarification":
            vague = definite(question, topic) or pronoun(question, topic)
            if vague is not None:
                history = [*history[-2:], (vague, rng.choice(_TEXTS["clarify"]).format(topic.kind or "one"))]
                made = rng.choice(("{}", "{}.", "I mean {}", "about {}")).format(topic.name), full
        case "more":
            history = _named_turns(article, [*history[-2:], _turn(query, article, rng)], rng)
            made = rng.choice(_TEXTS["more"]), full
        case _:
            history = _named_turns(article, history, rng)
    if made is None:
        history = history if kind == "return" else _named_turns(article, history, rng)
        made = _leaning(question, topic, history, rng), full
    return TrainingExample(made[0], tuple(history), gold, made[1])


def _leaning(question: str, topic: Topic, history: Sequence[Turn], rng: random.Random) -> str:
    """The question without the name of its topic, by one of the rules at random."""
    said = " ".join(part for turn in history for part in turn)
    ways = [pronoun(question, topic), pronoun(question, topic), dropped(question, topic), definite(question, topic)]
    possible = [way for way in ways if way is not None]
    text = rng.choice(possible) if possible else entity_pronoun(question, said, rng) or question
    if rng.random() < 0.12:
        text = f"{rng.choice(('And', 'So', 'Ok,', 'but'))} {text[0].lower()}{text[1:]}"
    return text


def _in_full(question: str, topic: Topic) -> str:
    return question if topic.named(question) is not None else f"{topic.name}: {question}"


def _history(article: _Article, place: int, rng: random.Random) -> list[Turn]:
    """Turns from the questions before this one in its article, oldest first; at least one."""
    wanted = rng.choices(list(_TURNS), list(_TURNS.values()))[0]
    near = range(max(0, place - _NEAR), place)
    chosen = sorted(rng.sample(near, min(wanted, len(near))))
    return [_turn(article.questions[i], article, rng) for i in chosen]


def _named_turns(article: _Article, history: Sequence[Turn], rng: random.Random) -> list[Turn]:
    """The turns, changed so that one of them names the topic. Later turns often have a pronoun instead."""
    turns = list(history)
    if not any(article.topic.named(question) for question, _ in turns):
        naming = [query for query in article.questions if article.topic.named(query.question)]
        if naming and rng.random() < 0.5:
            opening = _turn(rng.choice(naming), article, rng)
        else:
            first = next(iter(article.passages.values()))
            opening = (rng.choice(_TEXTS["openings"]).format(article.topic.name), first[:300])
        turns = [opening, *turns[1:]]
    named = False
    for number, (question, answer) in enumerate(turns):
        if article.topic.named(question):
            if named and rng.random() < 0.6:
                turns[number] = (pronoun(question, article.topic) or question, answer)
            named = True
    return turns


def _turn(query: Query, article: _Article, rng: random.Random) -> Turn:
    """The question with its answer: a span, the sentences around the span, or an empty text."""
    draw = rng.random()
    if draw < _NO_ANSWER:
        return query.question, ""
    text = next((article.passages[identity] for identity in query.gold if identity in article.passages), "")
    spans = sentences(text) if draw <= _NO_ANSWER + _LONG_ANSWER else []
    if not spans:
        return query.question, query.answer
    at = text.find(query.answer)
    first = next((number for number, span in enumerate(spans) if span.start <= at < span.end), 0)
    last = min(first + rng.randrange(3), len(spans) - 1)
    return query.question, text[spans[first].start : spans[last].end]


def _styled(example: TrainingExample, rng: random.Random) -> TrainingExample:
    """The question as people type it: often in lower case, often without a question mark."""
    question = example.question
    if rng.random() < 0.3:
        question = question.lower()
    if rng.random() < 0.3:
        question = question.rstrip("?. ")
    return replace(example, question=question or example.question)


def with_synthetic(
    data: TrainingData, single_turn: Sequence[Dataset], *, synthetic: int, single: int, seed: int = 0
) -> TrainingData:
    """Add synthetic conversations, and some single-turn questions as they are, to the data.

    The turns of a real conversation often share one passage. A head that is trained only on such turns learns to always
    follow the history. Raises InputError if a passage id stands for two texts.
    """
    examples = list(data.examples)
    passages = {str(passage.id): passage for passage in data.passages}
    for dataset in single_turn:
        texts = {str(passage.id): passage for passage in dataset.corpus}
        share = synthetic // len(single_turn)
        found = synthetic_conversations(dataset, share, seed=seed) if share else []
        asked = [query for query in dataset.queries if query.gold]
        order = np.random.default_rng(seed).permutation(len(asked))[: single // len(single_turn)].tolist()
        plain = [asked[number] for number in order]
        found += [TrainingExample(one.question, (), one.gold, one.question, dataset.name) for one in plain]
        examples += found
        answering = sorted({identity for example in found for identity in example.gold} & texts.keys())
        add_passages(passages, [texts[identity] for identity in answering], dataset.name)
    return TrainingData(tuple(examples), tuple(passages.values()))
