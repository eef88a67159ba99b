"""Ranking of search results and of the passages of pages by sparse Hopfield retrieval (Pan et al. 2024b, section 3.4.1)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langgraph_convcoa.actions.web.pages import Page
from langgraph_convcoa.actions.web.search import SearchResult

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.encoders.base import Encoder

_REMEMBERED = 4_000
_MOST_PARTS = 100
"""A title with its snippet is split into fewer parts than this, because it is short."""
_MOST_PASSAGES = 60
"""A look-up encodes at most this many passages. If there are more, BM25 chooses them."""


class WebRanker:
    """Ranks search results and passages against Sub|guess; the encoder is loaded, and its errors raised, on first use."""

    def __init__(self, encoder: Encoder | Embeddings | str | None = None) -> None:
        self._given = encoder
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()

    def choose(self, results: Sequence[SearchResult], query: str, n: int) -> list[SearchResult]:
        """The n results whose title|snippet is most similar to the query, best first."""
        if len(results) <= n:
            return list(results)
        from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

        shown = [
            Document(result.snippet or result.title, id=str(i), metadata={"title": result.title})
            for i, result in enumerate(results)
        ]
        # A result is one pattern, as in the paper; the windows of a long result have the ids "{id}#{n}".
        found = HopfieldRetriever.from_documents(shown, encoder=self._loaded(), k=_MOST_PARTS * len(results)).invoke(query)
        order = dict.fromkeys(int(str(document.id).split("#")[0]) for document in found)
        return [results[i] for i in order][:n]

    def passages(self, pages: Sequence[Page], query: str, k: int) -> list[Document]:
        """The best passages of pages, with `source`, `title` and `date`. Each page is a multi-vector document."""
        from langgraph_convcoa.retrieval.documents.split import split_documents
        from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index
        from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

        encoder = self._loaded()
        documents = {}
        for page in (page for page in pages if page.text.strip()):
            metadata = {"source": page.url, "title": page.title, "date": page.date}
            documents[page.url] = Document(page.text, id=page.url, metadata={key: v for key, v in metadata.items() if v})
        if not documents:
            return []
        parts = split_documents(documents.values(), encoder)
        if len(parts) > _MOST_PASSAGES:
            scores = BM25Index(parts).scores([query])[0]
            parts = [parts[int(i)] for i in np.sort(np.argsort(-scores, kind="stable")[:_MOST_PASSAGES])]
        return HopfieldRetriever.from_documents(parts, encoder=encoder, k=k).invoke(query)

    def _loaded(self) -> Encoder:
        from langgraph_convcoa.retrieval.encoders.base import RecentEncoder
        from langgraph_convcoa.retrieval.encoders.choice import as_encoder

        with self._lock:
            if self._encoder is None:
                # Sub-questions of a turn often lead to the same pages.
                self._encoder = RecentEncoder(as_encoder(self._given), _REMEMBERED)
            return self._encoder
