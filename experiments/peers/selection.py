"""Earlier turns that help a question, after HAConvDR (Mo et al. 2024): by similarity, and by gold passages as a bound.

HAConvDR asks of each earlier turn whether it raises the rank of a passage that is known to be relevant, and lets the question
be searched together with the turns that do ("context-denoised query reformulation"). Kept is that reformulation; left out are
the passages of those turns and the training with them as positives and hard negatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.query.conversation_state import turn_text

LEAST = 0.0
"""Cosine of question and turn from which a turn is kept: the best of 0, 0.1, 0.15, 0.2, 0.3, 0.4 and 0.5 on 200 questions of
abg_coqa's training part (MRR from 0.546 to 0.190, 0.553 with every turn), and so for the last four on or_sharc's and
quac_dev's: what leaves out more turns loses more."""


def similar_turns(encoder: Encoder, queries: Sequence[Query], least: float = LEAST) -> list[str]:
    """Each question with those earlier turns whose cosine to it is at least so much, latest first."""
    return [
        _joined(query, [turn for turn, near in zip(turns, likeness, strict=True) if near >= least])
        for query, (turns, likeness) in zip(queries, turn_likeness(encoder, queries), strict=True)
    ]


def turn_likeness(encoder: Encoder, queries: Sequence[Query]) -> list[tuple[list[str], list[float]]]:
    """The earlier turns of each question as they are encoded, oldest first, and their cosines to it."""
    turns = [[text for text in map(turn_text, query.history) if text] for query in queries]
    vectors = encoder.encode_queries([query.question for query in queries] + [text for texts in turns for text in texts])
    questions, parts = vectors[: len(queries)], iter(vectors[len(queries) :])
    return [(texts, [float(next(parts) @ x) for _ in texts]) for texts, x in zip(turns, questions, strict=True)]


def helpful_turns(encoder: Encoder, passages: Vectors, owners: Sequence[str], queries: Sequence[Query]) -> list[str]:
    """Each question with those earlier turns of which each by itself raises the rank of its best gold passage."""
    turns = [[text for text in map(turn_text, query.history) if text] for query in queries]
    texts = [
        _joined(query, kept) for query, own in zip(queries, turns, strict=True) for kept in ([], *([turn] for turn in own))
    ]
    scores = iter(encoder.encode_queries(texts) @ passages.T)
    found = []
    for query, own in zip(queries, turns, strict=True):
        gold = np.isin(owners, query.gold)
        alone, *ranks = (_rank(next(scores), gold) for _ in range(1 + len(own)))
        found.append(_joined(query, [turn for turn, rank in zip(own, ranks, strict=True) if rank < alone]))
    return found


def _rank(scores: Vectors, gold: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return int((scores > scores[gold].max()).sum())


def _joined(query: Query, turns: Sequence[str]) -> str:
    """The question and turns, latest first, since the encoder cuts off the end of what is too long."""
    return " ".join([query.question, *reversed(turns)])
