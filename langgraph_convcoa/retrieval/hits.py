"""From what a search found to the documents that it returns."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.index.documents import Passage
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import Ranking, associate
from langgraph_convcoa.retrieval.scoring.weights import HopfieldWeights


class Hit(NamedTuple):
    """A passage that was found, the number of its memory set, and whether the ranking is certainly the exact one."""

    number: int
    score: float
    passage: Passage
    certified: bool


def best_sets(ranking: Ranking, threshold: float | None) -> list[tuple[int, float]]:
    """The numbers and scores of a ranking, those below the threshold left out."""
    return [
        (int(number), float(score))
        for number, score in zip(ranking.indices, ranking.scores, strict=True)
        if threshold is None or score >= threshold
    ]


def hit_document(
    patterns: Patterns,
    hit: Hit,
    state: Vectors,
    *,
    beta: float,
    association: bool,
    weights: HopfieldWeights | None = None,
) -> Document:
    """A new document of a passage, with its `source`, `score`, `certified` and `quote`, and `association` where it is wanted.

    Args:
        patterns: Of all memory sets.
        hit: The passage.
        state: (d,), the query state that it was found for.
        beta: Inverse temperature of the association.
        association: Put the windows that matched in the metadata.
        weights: Trained W_Q, W_K, W_V; the identity when None.
    """
    passage, spans = hit.passage.document, hit.passage.spans
    shares, products = associate(patterns, hit.number, state, beta, weights)
    texts = [passage.page_content[start:end] for start, end in spans]
    metadata = copy.deepcopy(passage.metadata)
    metadata.setdefault("source", str(metadata.get("document_id") or passage.id))
    # By product where weights are equal, as all are at beta = 0.
    best = max(range(len(texts)), key=lambda i: (shares[i], products[i]))
    metadata |= {"score": hit.score, "certified": hit.certified, "quote": texts[best]}
    if association:
        metadata["association"] = [
            {"text": text, "start": start, "end": end, "weight": float(weight)}
            for text, (start, end), weight in zip(texts, spans, shares, strict=True)
        ]
    return Document(id=passage.id, page_content=passage.page_content, metadata=metadata)


def named_documents(
    texts: Iterable[str], metadatas: Iterable[dict[str, Any]] | None, ids: Iterable[str] | None
) -> list[Document]:
    """Documents of plain texts, with their metadata and ids where given.

    Raises:
        InputError: There are not as many metadatas or ids as texts, or the texts are one string.

    Example:
        >>> [document.id for document in named_documents(["Ada wrote it."], None, ["a"])]
        ['a']
    """
    if isinstance(texts, str):
        raise InputError("The texts are one string; give a list of texts.")
    bodies = list(texts)
    data = [{} for _ in bodies] if metadatas is None else list(metadatas)
    names = [None for _ in bodies] if ids is None else list(ids)
    if not len(bodies) == len(data) == len(names):
        raise InputError(f"There are {len(bodies)} texts, {len(data)} metadatas and {len(names)} ids; give one of each.")
    return [Document(id=i, page_content=t, metadata=m) for t, m, i in zip(bodies, data, names, strict=True)]
