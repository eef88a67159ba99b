"""Earlier turns that help a question, after HAConvDR (Mo et al. 2024): by similarity, or by gold passages as an ideal.

HAConvDR finds the earlier turns that raise the rank of a passage known to be relevant, and searches with the question and
these turns ("context-denoised query reformulation"). Only this reformulation is used here, not the passages of these turns,
nor the training with them as positives and hard negatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.query.conversation_state import turn_text

LEAST = 0.0
"""Lowest cosine to the question of a turn that is kept. It is the best of 0, 0.1, 0.15, 0.2, 0.3, 0.4 and 0.5 on 200 training
questions of abg_coqa (MRR from 0.546 down to 0.190; 0.553 with every turn). The last four values show the same on or_sharc and
quac_dev: the more turns are left out, the lower is the MRR."""


def similar_turns(encoder: Encoder, queries: Sequence[Query], least: float = LEAST) -> list[str]:
    """Each question with those earlier turns whose cosine to it is at least `least`, latest first."""
    return [
        _joined(query, [turn for turn, near in zip(turns, likeness, strict=True) if near >= least])
        for query, (turns, likeness) in zip(queries, turn_likeness(encoder, queries), strict=True)
    ]


def turn_likeness(encoder: Encoder, queries: Sequence[Query]) -> list[tuple[list[str], list[float]]]:
    """The earlier turns of each question as they are encoded, oldest first, and their cosines to the question."""
    turns = [[text for text in map(turn_text, query.history) if text] for query in queries]
    vectors = encoder.encode_queries([query.question for query in queries] + [text for texts in turns for text in texts])
    questions, parts = vectors[: len(queries)], iter(vectors[len(queries) :])
    return [(texts, [float(next(parts) @ x) for _ in texts]) for texts, x in zip(turns, questions, strict=True)]


def helpful_turns(encoder: Encoder, passages: Vectors, owners: Sequence[str], queries: Sequence[Query]) -> list[str]:
    """Each question with those earlier turns that each raise the rank of its best gold passage."""
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
    """The question and the turns, latest first: the encoder cuts off the end of a long text."""
    return " ".join([query.question, *reversed(turns)])
