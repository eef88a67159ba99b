"""The corpus of a LangChain vector store: the store names candidates for a question, and their windows are encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore

from langgraph_convcoa.errors import InputError, RetrievalError, first_line
from langgraph_convcoa.retrieval.corpus import Corpus
from langgraph_convcoa.retrieval.encoders.base import Encoder, RecentEncoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder, as_encoder
from langgraph_convcoa.retrieval.memory_corpus import Memory, build_memory, empty_memory
from langgraph_convcoa.retrieval.query.conversation_state import Query, StateEncoder

_BY_VECTOR = "similarity_search_by_vector"
# Largest number of encoded texts that are kept.
_KEPT = 20_000


class VectorStoreCorpus(Corpus):
    """Candidates from a vector store; the arguments are those of `HopfieldRetriever.from_vectorstore`.

    If the store names its embeddings (`store.embeddings`) and can search by vector, it is searched by the query state, which
    holds the conversation. Otherwise, it is searched by the text of the previous and the current question. Windows of
    candidates are encoded on first use and kept, so the first questions are slow. Long documents are split into passages.
    """

    complete: ClassVar[bool] = False

    def __init__(
        self,
        store: VectorStore,
        encoder: Encoder | Embeddings | str | None = None,
        *,
        candidates: int = 32,
        search_kwargs: Mapping[str, Any] | None = None,
        cache: PatternCache | None = None,
    ) -> None:
        if not isinstance(store, VectorStore):
            raise InputError(f"The first stage must be a LangChain VectorStore, not {type(store).__name__}.")
        if candidates < 1:
            raise InputError(f"candidates must be at least 1, not {candidates}.")
        self.store = store
        self.candidates = candidates
        self.search_kwargs = dict(search_kwargs or {})
        self._cache = cache
        embeddings = store.embeddings
        self._own = _StoreEncoder(embeddings) if isinstance(embeddings, Embeddings) else None
        same = encoder is None or encoder is embeddings or getattr(encoder, "embeddings", None) is embeddings
        self._shared = self._own is not None and same
        self.encoder: Encoder = RecentEncoder(self._own if self._own and same else as_encoder(encoder), _KEPT)
        searches = type(store).similarity_search_by_vector is not VectorStore.similarity_search_by_vector
        self._states = StateEncoder(self._own) if self._own is not None and searches else None

    def __len__(self) -> int:
        raise InputError("A vector store does not say how many documents it has; ask the store itself.")

    def snapshot(self) -> Memory:
        """An empty view: a store names passages only for a question."""
        return empty_memory()

    def view(self, asked: Query) -> Memory:
        """The candidates for one question, in the store's order; RetrievalError if the store fails."""
        method, query, options = self._request(asked)
        try:
            found = getattr(self.store, method)(query, **options)
        except Exception as error:
            if self._is_by_text_only(method, error):
                return self.view(asked)
            raise self._failure(error) from error
        return self._encoded(found)

    async def aview(self, asked: Query) -> Memory:
        """Like `view`, through the store's asynchronous searches; encoding runs in a thread."""
        method, query, options = await run_in_executor(None, self._request, asked)
        try:
            found = await getattr(self.store, f"a{method}")(query, **options)
        except Exception as error:
            if self._is_by_text_only(method, error):
                return await self.aview(asked)
            raise self._failure(error) from error
        return await run_in_executor(None, self._encoded, found)

    def ingest(self, *_arguments: Any, **_settings: Any) -> NoReturn:
        raise InputError("This retriever is over a vector store, which keeps the documents: save and change the store itself.")

    delete = documents = keep_settings = ingest

    def __repr__(self) -> str:
        return f"VectorStoreCorpus({type(self.store).__name__})"

    def _request(self, asked: Query) -> tuple[str, list[float] | str, dict[str, Any]]:
        """The store's method, its argument (the query state in the store's space, or text), and options."""
        options = {**self.search_kwargs, "k": max(asked.k, self.candidates)}
        # Another thread may set `_states` to None meanwhile.
        states = self._states
        if self._own is None or states is None:
            asks = [*(question for question, _ in asked.turns[0][-1:] if question), asked.questions[0]]
            return "similarity_search", " ".join(asks), options
        state = asked.states[0]
        if not self._shared:
            weights = {"history_weight": asked.history_weight, "history_beta": asked.history_beta}
            state = states.states(asked.questions, asked.turns, **weights)[0]
        return _BY_VECTOR, (state * np.float32(self._own.length)).tolist(), options

    def _is_by_text_only(self, method: str, error: Exception) -> bool:
        """True if the store cannot search by vector. From then on it is searched by text."""
        if method != _BY_VECTOR or not isinstance(error, NotImplementedError):
            return False
        self._states = None
        return True

    def _failure(self, error: Exception) -> RetrievalError:
        return RetrievalError(f"The vector store {type(self.store).__name__} failed: {first_line(error, named=True)}.")

    def _encoded(self, found: Iterable[Document]) -> Memory:
        documents: dict[str, Document] = {}
        for document in found:
            if document.page_content.strip():
                documents.setdefault(document.id or f"\0{document.page_content}", document)
        return build_memory(documents.values(), self.encoder, cache=self._cache) if documents else empty_memory()


class _StoreEncoder(EmbeddingsEncoder):
    """The store's embeddings. A state is scaled to the length of the store's vectors, for stores that compare by distance."""

    length = 1.0

    def _embed_queries(self, texts: list[str]) -> list[list[float]]:
        rows = super()._embed_queries(texts)
        if rows:
            self.length = float(np.linalg.norm(np.asarray(rows[0], dtype=np.float64))) or 1.0
        return rows
