"""A small, fast encoder whose vectors are known: a hashed bag of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from scipy.sparse import issparse

from langgraph_convcoa.retrieval.corpus import Corpus, read
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.graph.index import GraphIndex
from langgraph_convcoa.text.words import words
from tests.fake_encoder import WordEncoder


def put(corpus: Corpus, documents: Iterable[Document], encoder: Encoder, **options: Any) -> list[str]:
    """Add documents to a corpus, or put them in place of those there with `replace`; their ids."""
    return [identity for done in corpus.ingest(documents, encoder, **options) for identity in done.ids]


class BagOfWords(WordEncoder):
    """A `WordEncoder` of any size; a token is a word, plus one at either end. Remembers passages and queries."""

    def __init__(self, name: str = "bag", dimension: int = 4096, max_tokens: int = 64) -> None:
        super().__init__()
        self.name, self.dimension, self.max_tokens = name, dimension, max_tokens
        self.buckets = dimension
        self.passages, self.queries = self.encoded, list[str]()

    def count_tokens(self, text: str) -> int:
        return len(words(text)) + 2

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        self.queries.extend(texts)
        return super().encode_queries(texts)


@pytest.fixture
def encoder() -> BagOfWords:
    return BagOfWords()


@pytest.fixture
def small() -> BagOfWords:
    return BagOfWords(dimension=32)


@pytest.fixture(scope="session")
def milvus() -> Iterator[str]:
    """The URL of a Milvus in a file, by milvus-lite, without a collection; skipped where that is not installed."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    from milvus_lite.server_manager import server_manager_instance

    with TemporaryDirectory(prefix="convcoa-milvus-") as folder:
        path = Path(folder) / "test.db"
        try:
            yield f"milvus+file://{path}"
        finally:
            server_manager_instance.release_server(str(path))


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
