"""Test cases of guesses: a question with its right answer, another answer of its passage, and an unrelated answer."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_dataset, load_part
from langgraph_convcoa.datasets.splits import Part, split_part
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.reasoning.base import Unsolved
from langgraph_convcoa.reasoning.chat_model import unsolved_text
from langgraph_convcoa.text.words import content_words
from langgraph_convcoa.verification.references import References

REPORTED_SHARE = 0.65
"""Where a data set has no split "dev", this share of its conversations is reported on, and the others are fitted on."""


@dataclass(frozen=True, eq=False)
class GuessCase:
    """A question, its evidence, and three guesses: the right answer, another of the passage, the answer to another question.

    `new` says that the conversation has not had the other answer of the passage; `prompt_tokens` are those, estimated, that a
    guess which is not kept adds to the prompt for corrections.
    """

    references: References
    question: str
    guesses: tuple[str, str, str]
    conversation: str
    new: bool
    prompt_tokens: int


def load_cases(
    folder: str | Path,
    *,
    n: int,
    seed: int = 0,
    split: str | None = None,
    part: Part = "dev",
    history: bool = True,
) -> tuple[list[GuessCase], str]:
    """At most `n` cases of a data set, in random order, and the name of the part of the data set that they are of.

    That is the split (`load_part`), or without one the part "dev", which is reported, or "train", which the score was fitted
    on (`REPORTED_SHARE`). Questions without an answer, or a second answer in their passage, are skipped; with `history` the
    score is told the answers of the conversation so far.

    Raises:
        InputError: A file cannot be read or holds fewer than two such questions.
    """
    if n < 2:
        raise InputError(f"n must be at least 2, not {n}.")
    if split is not None:
        data, name = load_part(folder, split)
    else:
        found = split_part(load_dataset(folder), part, dev_share=REPORTED_SHARE)
        data, name = found.dataset, found.name
    corpus = {document.id: document for document in data.corpus}
    rng = random.Random(seed)  # noqa: S311
    cases: list[GuessCase] = []
    for query, other, unrelated in _wrong_answers([q for q in data.queries if q.answer and set(q.gold) & corpus.keys()], rng):
        passage = corpus[next(identity for identity in query.gold if identity in corpus)]
        text = unsolved_text(Unsolved(0, query.question, query.answer, [passage]))
        cases.append(
            GuessCase(
                references=References.of([passage], query.history if history else ()),
                question=query.question,
                guesses=(query.answer, other, unrelated),
                conversation=query.conversation_id,
                new=other.casefold() not in {answer.casefold() for _, answer in query.history},
                prompt_tokens=count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0),
            )
        )
        if len(cases) == n:
            break
    if len(cases) < 2:
        raise InputError(f"{folder} holds no two answered questions on one passage in {name}; choose another split.")
    return cases, name


def _wrong_answers(queries: Sequence[Query], rng: random.Random) -> Iterator[tuple[Query, str, str]]:
    """Questions in random order, each with an answer of the same passage that shares no content word, and a random one."""
    answers = defaultdict(list)
    for query in queries:
        answers[query.gold[0]].append(query.answer)
    order = list(queries)
    rng.shuffle(order)
    for query in order:
        right = set(content_words(query.answer))
        others = [other for other in answers[query.gold[0]] if content_words(other) and right.isdisjoint(content_words(other))]
        if right and others:
            yield query, rng.choice(others), rng.choice(queries).answer
