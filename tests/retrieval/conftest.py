"""A small, fast encoder whose vectors are known: a hashed bag of words."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from scipy.sparse import issparse

from langgraph_convcoa.retrieval.corpus import Corpus, read
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.graph.index import GraphIndex
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.text.words import content_words, words
from tests.milvus_file import milvus_file


def put(corpus: Corpus, documents: Iterable[Document], encoder: Encoder, **options: Any) -> list[str]:
    """Add documents to a corpus, or put them in place of those there with `replace`; their ids."""
    return [identity for done in corpus.ingest(documents, encoder, **options) for identity in done.ids]


class BagOfWords(Encoder):
    """Counts of hashed content words; a token is a word, plus one at either end. Remembers what it was given."""

    def __init__(self, name: str = "bag", dimension: int = 4096, max_tokens: int = 64) -> None:
        self._name, self._dimension, self._max_tokens = name, dimension, max_tokens
        self.passages: list[str] = []
        self.queries: list[str] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def max_tokens(self) -> int:
        return self._max_tokens

    def count_tokens(self, text: str) -> int:
        return len(words(text)) + 2

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        self.queries.extend(texts)
        return self._vectors(texts)

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        with track(progress, len(texts), "Encoding") as advance:
            self.passages.extend(texts)
            advance(len(texts))
        return self._vectors(texts)

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), self._dimension))
        for row, text in zip(rows, texts, strict=True):
            for word in content_words(text):
                row[zlib.crc32(word.encode()) % self._dimension] += 1
        return normalised(rows, len(texts), self._dimension, self._name)


@pytest.fixture
def encoder() -> BagOfWords:
    return BagOfWords()


@pytest.fixture
def small() -> BagOfWords:
    return BagOfWords(dimension=32)


@pytest.fixture(scope="session")
def milvus() -> Iterator[str]:
    """The URL of a Milvus in a file, without a collection."""
    with milvus_file() as url:
        yield url


def same_links(one, other):
    """Two graphs have the same links."""
    for field in fields(one):
        pair = [getattr(links, field.name) for links in (one, other)]
        pair = [found.toarray() if issparse(found) else found for found in pair]
        np.testing.assert_array_equal(*pair)


def as_anew(follower, corpus):
    """The graph that a follower has of a corpus is the one that is built anew."""
    view = corpus.snapshot()
    index, found = GraphIndex(passage.document for passage in read(view)), follower.links(view)
    assert (found is None) == index.empty
    if found is not None:
        same_links(found[0], index.links)
