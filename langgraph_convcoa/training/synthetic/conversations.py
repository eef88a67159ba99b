"""Synthetic conversations, made by the rules of `ellipsis` from single-turn questions over titled articles.

A conversation has a few earlier questions of one article with their answers, and a question that needs them; its rewrite is
the same question in full.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.words import sentences
from langgraph_convcoa.training.data import TrainingData, TrainingExample, add_passages
from langgraph_convcoa.training.synthetic.ellipsis import (
    Topic,
    definite,
    dropped,
    entity_pronoun,
    other_question_word,
    other_year,
    pronoun,
)

Turn = tuple[str, str]

_TURNS = (1, 2, 3, 4, 5)
_TURN_WEIGHTS = (0.35, 0.28, 0.2, 0.11, 0.06)
_NEAR = 12
"""Earlier turns are drawn from at most this many questions of the article, the nearest before the question."""
_UNNAMED = 0.25
_LONG_ANSWER = 0.4
_NO_ANSWER = 0.1
_KINDS = {
    "leaning": 0.40,
    "self-contained": 0.14,
    "switch": 0.12,
    "return": 0.08,
    "question word": 0.06,
    "what about": 0.10,
    "another year": 0.03,
    "clarification": 0.05,
    "more": 0.02,
}
_MORE = (
    "Tell me more.",
    "can you explain that?",
    "Can you give more details?",
    "more about that",
    "What else?",
    "Why is that?",
)
_WHAT_ABOUT = ("What about {}?", "And {}?", "How about {}?", "what about {}", "and for {}?", "Is it the same for {}?", "{}?")
_WHICH = (
    "Which one do you mean?",
    "Which {} are you asking about?",
    "What {} are you asking about?",
    "Could you be more specific?",
)
_OPENINGS = ("Tell me about {}.", "What is {}?", "{}", "I want to know about {}.", "what do you know about {}")


@dataclass(frozen=True)
class _Article:
    topic: Topic
    questions: list[Query]
    passages: dict[str, str]


def synthetic_conversations(dataset: Dataset, count: int, *, seed: int = 0) -> list[TrainingExample]:
    """Conversations made from single-turn questions over titled passages.

    About a quarter of the questions do not need the history: half of these keep its topic, the others change it. Questions
    that are not in the data have no gold passage. Raises InputError if fewer than two titled articles have questions.
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
    query = article.questions[place]
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    history = _history(article, place, rng)
    full = _in_full(query.question, article.topic)
    made: tuple[str, str] | None = None
    gold = query.gold
    match kind:
        case "self-contained":
            made = (full if article.topic.named(query.question) is None and rng.random() < 0.5 else query.question), full
        case "switch":
            other = rng.choice([one for one in articles if one is not article])
            history = _history(other, rng.randrange(1, len(other.questions)), rng)
            # Not `full`: the history does not name the topic if the question leaves it out.
            made = query.question, query.question
        case "return":
            other = rng.choice([one for one in articles if one is not article])
            history = [
                *_history(other, rng.randrange(1, len(other.questions)), rng),
                *_named_turns(article, history[-2:], rng),
            ]
        case "question word" | "another year":
            made = (other_question_word if kind == "question word" else other_year)(query.question, rng)
            if made is not None:
                history = _named_turns(article, [*history[-2:], (query.question, _answer(query, article, rng))], rng)
                made, gold = (made[0], _in_full(made[1], article.topic)), ()
        case "what about":
            found = article.topic.named(query.question)
            if found is not None:
                like = [one for one in articles if one.topic.subject == article.topic.subject and one is not article]
                other = rng.choice(like or [one for one in articles if one is not article])
                history = [*history[-2:], (query.question, _answer(query, article, rng))]
                full = query.question[: found.start()] + other.topic.name + query.question[found.end() :]
                made, gold = (rng.choice(_WHAT_ABOUT).format(other.topic.name), full), ()
        case "clarification":
            vague = definite(query.question, article.topic) or pronoun(query.question, article.topic)
            if vague is not None:
                history = [*history[-2:], (vague, rng.choice(_WHICH).format(article.topic.kind or "one"))]
                made = rng.choice(("{}", "{}.", "I mean {}", "about {}")).format(article.topic.name), full
        case "more":
            history = [*history[-2:], (query.question, _answer(query, article, rng))]
            history = _named_turns(article, history, rng)
            made = rng.choice(_MORE), full
        case _:
            history = _named_turns(article, history, rng)
    if made is None:
        history = history if kind == "return" else _named_turns(article, history, rng)
        made = _leaning(query.question, article.topic, history, rng), full
    return TrainingExample(made[0], tuple(history), gold, made[1])


def _leaning(question: str, topic: Topic, history: Sequence[Turn], rng: random.Random) -> str:
    """The question without the name of its topic, in one of the possible ways."""
    said = " ".join(part for turn in history for part in turn)
    ways = [pronoun(question, topic), pronoun(question, topic), dropped(question, topic), definite(question, topic)]
    possible = [way for way in ways if way is not None]
    text = rng.choice(possible) if possible else entity_pronoun(question, said, rng) or question
    if rng.random() < 0.12:
        text = f"{rng.choice(('And', 'So', 'Ok,', 'but'))} {text[0].lower()}{text[1:]}"
    return text


def _in_full(question: str, topic: Topic) -> str:
    """The question with the topic named."""
    return question if topic.named(question) is not None else f"{topic.name}: {question}"


def _history(article: _Article, place: int, rng: random.Random) -> list[Turn]:
    """Turns from the questions before this one in its article, oldest first; at least one."""
    wanted = rng.choices(_TURNS, _TURN_WEIGHTS)[0]
    near = range(max(0, place - _NEAR), place)
    chosen = sorted(rng.sample(near, min(wanted, len(near))))
    return [(article.questions[i].question, _answer(article.questions[i], article, rng)) for i in chosen]


def _named_turns(article: _Article, history: Sequence[Turn], rng: random.Random) -> list[Turn]:
    """The turns, with the topic named in the first of them and often left out in later ones."""
    turns = list(history)
    if not any(article.topic.named(question) for question, _ in turns):
        naming = [query for query in article.questions if article.topic.named(query.question)]
        if naming and rng.random() < 0.5:
            query = rng.choice(naming)
            opening = (query.question, _answer(query, article, rng))
        else:
            first = next(iter(article.passages.values()))
            opening = (rng.choice(_OPENINGS).format(article.topic.name), first[:300])
        turns = [opening, *turns[1:]] if len(turns) > 1 else [opening]
    named = False
    for number, (question, answer) in enumerate(turns):
        if article.topic.named(question):
            if named and rng.random() < 0.6:
                turns[number] = (pronoun(question, article.topic) or question, answer)
            named = True
    return turns


def _answer(query: Query, article: _Article, rng: random.Random) -> str:
    """The answer as a span, as the sentences around it, or empty."""
    draw = rng.random()
    if draw < _NO_ANSWER:
        return ""
    text = next((article.passages[identity] for identity in query.gold if identity in article.passages), "")
    if draw > _NO_ANSWER + _LONG_ANSWER or not text:
        return query.answer
    spans = sentences(text)
    at = text.find(query.answer)
    first = next((number for number, span in enumerate(spans) if span.start <= at < span.end), 0)
    last = min(first + rng.randrange(3), len(spans) - 1)
    return text[spans[first].start : spans[last].end] if spans else query.answer


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
    """The data with synthetic conversations, and with some single-turn questions as they are.

    The turns of a real conversation often share one passage: a head trained only on these learns to always follow
    the history. Raises InputError if a passage id stands for two texts.
    """
    examples = list(data.examples)
    passages = {str(passage.id): passage for passage in data.passages}
    for dataset in single_turn:
        texts = {str(passage.id): passage for passage in dataset.corpus}
        found: list[TrainingExample] = []
        if share := synthetic // len(single_turn):
            found += synthetic_conversations(dataset, share, seed=seed)
        asked = [query for query in dataset.queries if query.gold]
        order = np.random.default_rng(seed).permutation(len(asked))[: single // len(single_turn)]
        for query in (asked[number] for number in order.tolist()):
            found.append(TrainingExample(query.question, (), query.gold, query.question, dataset.name))
        examples += found
        answering = sorted({identity for example in found for identity in example.gold} & texts.keys())
        add_passages(passages, [texts[identity] for identity in answering], dataset.name)
    return TrainingData(tuple(examples), tuple(passages.values()))
