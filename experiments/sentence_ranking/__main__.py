"""Fits the weights of the sentence ranking on training questions: `python -m experiments.sentence_ranking DATA/squad2`."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.nodes.plan import EXTRACTIVE_K
from langgraph_convcoa.reasoning.extractive.coverage import cover
from langgraph_convcoa.reasoning.extractive.query import make_query
from langgraph_convcoa.reasoning.extractive.sentence_ranking import Candidate, rank_sentences
from langgraph_convcoa.reasoning.extractive.weights import SENTENCE_FEATURES
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.matching import match_answer

L2 = 2.0
Sentences = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""The features of the sentences of a question, and which of them are right."""


def fit_weights(
    data: str | Path,
    *,
    split: str | None = "train",
    sample: int = 2_000,
    seed: int = 0,
    encoder: Encoder | None = None,
    cache: PatternCache | None = None,
    progress: Progress = True,
) -> dict[str, tuple[float, float]]:
    """The weights of each feature for words alone, and with an encoder, whose choice of sentences uses the present weights."""
    dataset, _ = load_part(data, split)
    asked = [query for query in dataset.queries if query.references and query.gold]
    asked = random.Random(seed).sample(asked, min(sample, len(asked)))
    encoder = as_encoder(encoder)
    retriever = HopfieldRetriever.from_documents(
        dataset.corpus, encoder=encoder, k=EXTRACTIVE_K, cache=cache, progress=progress
    )
    groups: tuple[list[Sentences], list[Sentences]] = [], []
    with track(progress, len(asked), "Reading") as advance:
        for query in asked:
            found = retriever.invoke(query.question)
            gold = [(document.metadata.get("document_id") or document.id) in query.gold for document in found]
            shares = cover(query.question, found).shares
            for group, used in zip(groups, (None, encoder), strict=True):
                ranked = rank_sentences(make_query(query.question), found, used, shares)
                holds = [gold[c.document] and match_answer(c.text, query.references)["cover_em"] > 0 for c in ranked]
                if any(holds):
                    group.append((_features(ranked, used is not None), np.array(holds)))
            advance(1)
    words, both = map(_fitted, groups)
    return dict(zip(SENTENCE_FEATURES, zip(words, both, strict=True), strict=True))


def _features(ranked: list[Candidate], encoded: bool) -> NDArray[np.float32]:
    return np.array([(*c.features, c.similarity if encoded else 0.0) for c in ranked], dtype=np.float32)


def _fitted(groups: list[Sentences]) -> list[float]:
    """The weights with the lowest loss: the negative log of the right sentences' share of a softmax, and an L2 penalty."""
    weights = torch.zeros(len(SENTENCE_FEATURES), requires_grad=True)
    pairs = [(torch.from_numpy(features), torch.from_numpy(right)) for features, right in groups]
    optimiser = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        total = L2 / 2 * weights.square().sum()
        for features, right in pairs:
            logits = features @ weights
            total = total + torch.logsumexp(logits, 0) - torch.logsumexp(logits[right], 0)
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return [round(weight, 2) for weight in weights.tolist()]


def main() -> None:
    """Print the weights as they stand in `reasoning/extractive/weights.py`."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.sentence_ranking")
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl")
    parser.add_argument("--sample", type=int, default=2_000, help="number of questions (default: 2,000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the questions (default: 0)")
    given = parser.parse_args()
    for feature, weights in fit_weights(given.data, sample=given.sample, seed=given.seed, cache=open_cache()).items():
        print(f'    "{feature}": {weights},')


if __name__ == "__main__":
    main()
