"""Any LangChain vector store as first stage: it names candidates, which are encoded in windows and ranked here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import Encoder, as_encoder
from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
from langgraph_convcoa.retrieval.encoders.recent import RecentEncoder
from langgraph_convcoa.retrieval.memory import EMPTY, Memory, build_memory
from langgraph_convcoa.retrieval.query.conversation_state import StateEncoder, Turn


class VectorStoreStage:
    """Fetches candidates from a vector store and makes a memory of them, to be searched exactly.

    The store keeps what it has; this library's scores are of the candidates only, so that a ranking over them is never
    certified. The store is searched by vector, with the conversation in the query state, where it says which embeddings it
    uses (`store.embeddings`) and can be searched so; else by the text of the question with the user's turn before it.

    Windows of candidates are encoded when they are first met and kept by content, for this object and, given a cache, on disk;
    the first questions over a large store are therefore slow. Documents that are longer than the encoder reads are split as
    elsewhere, and their parts carry `{id}#{n}`.

    Args:
        store: Any LangChain `VectorStore`.
        encoder: Encodes windows and questions; the store's own embeddings when None, where it names them.
        candidates: How many documents are fetched a question, at least k of them.
        search_kwargs: What every search of the store is given, such as `filter`, in the store's own form.
        cache: Where encoded windows are kept between runs.
        keep: How many encoded texts are kept in memory.

    Raises:
        InputError: `store` is no vector store, or `candidates` is below 1.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> store = InMemoryVectorStore.from_texts(["Ada wrote it.", "BM25 counts."], DeterministicFakeEmbedding(size=16))
        >>> memory = VectorStoreStage(store).fetch("Ada wrote it.", k=1)
        >>> len(memory), memory.passages[0].page_content
        (2, 'Ada wrote it.')
    """

    def __init__(
        self,
        store: VectorStore,
        encoder: Encoder | Embeddings | str | None = None,
        *,
        candidates: int = 32,
        search_kwargs: Mapping[str, Any] | None = None,
        cache: PatternCache | None = None,
        keep: int = 20_000,
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
        own = _StoreEncoder(embeddings) if isinstance(embeddings, Embeddings) else None
        same = encoder is None or encoder is embeddings or getattr(encoder, "embeddings", None) is embeddings
        self.encoder: Encoder = RecentEncoder(own if own is not None and same else as_encoder(encoder), keep)
        self._own = own
        self._shared = own is not None and same
        self._states = None if own is None else StateEncoder(own)
        self._by_vector = own is not None

    def fetch(
        self,
        question: str,
        history: Sequence[Turn] = (),
        *,
        k: int,
        state: Vectors | None = None,
        history_weight: float = 0.6,
        history_beta: float = 1.0,
        search_kwargs: Mapping[str, Any] | None = None,
    ) -> Memory:
        """The memory of the candidates for a question.

        Args:
            question: As it was put.
            history: Earlier turns, oldest first.
            k: How many documents are wanted; at least as many are fetched.
            state: The query state (d,) where the caller has it from `encoder`; made here when None.
            history_weight: lambda of the state.
            history_beta: beta_h of the state.
            search_kwargs: For this search, over those of every search.

        Returns:
            Passages in the store's order; empty where the store finds nothing.

        Raises:
            RetrievalError: The store fails, or its documents cannot be encoded.
        """
        arguments = {**self.search_kwargs, **(search_kwargs or {}), "k": max(k, self.candidates)}
        if self._by_vector:
            vector = self._vector(question, history, state, history_weight, history_beta)
            try:
                found = self.store.similarity_search_by_vector(vector, **arguments)
            except NotImplementedError:
                self._by_vector = False
            # What a store raises is not known here.
            except Exception as error:
                raise self._failure(error) from error
            else:
                return self._memory(found)
        try:
            found = self.store.similarity_search(_search_text(question, history), **arguments)
        except Exception as error:
            raise self._failure(error) from error
        return self._memory(found)

    async def afetch(
        self,
        question: str,
        history: Sequence[Turn] = (),
        *,
        k: int,
        state: Vectors | None = None,
        history_weight: float = 0.6,
        history_beta: float = 1.0,
        search_kwargs: Mapping[str, Any] | None = None,
    ) -> Memory:
        """`fetch` through the store's asynchronous searches; encoding runs in a thread."""
        arguments = {**self.search_kwargs, **(search_kwargs or {}), "k": max(k, self.candidates)}
        if self._by_vector:
            vector = await run_in_executor(None, self._vector, question, history, state, history_weight, history_beta)
            try:
                found = await self.store.asimilarity_search_by_vector(vector, **arguments)
            except NotImplementedError:
                self._by_vector = False
            except Exception as error:
                raise self._failure(error) from error
            else:
                return await run_in_executor(None, self._memory, found)
        try:
            found = await self.store.asimilarity_search(_search_text(question, history), **arguments)
        except Exception as error:
            raise self._failure(error) from error
        return await run_in_executor(None, self._memory, found)

    def _vector(
        self, question: str, history: Sequence[Turn], state: Vectors | None, history_weight: float, history_beta: float
    ) -> list[float]:
        """The query state in the store's space, as long as the vectors that its embeddings give."""
        assert self._own is not None
        assert self._states is not None
        if state is None or not self._shared:
            state = self._states.states([question], [history], history_weight=history_weight, history_beta=history_beta)[0]
        return [float(value) for value in state * np.float32(self._own.length)]

    def _memory(self, found: Iterable[Document]) -> Memory:
        documents: dict[str, Document] = {}
        for document in found:
            if document.page_content.strip():
                documents.setdefault(document.id or f"\0{document.page_content}", document)
        return build_memory(documents.values(), self.encoder, cache=self._cache) if documents else EMPTY

    def _failure(self, error: Exception) -> RetrievalError:
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        return RetrievalError(f"The vector store {type(self.store).__name__} failed: {type(error).__name__}: {reason}.")


class _StoreEncoder(EmbeddingsEncoder):
    """The store's embeddings, and how long their vectors are: what a store that compares by distance wants of a state."""

    length = 1.0

    def _embed_queries(self, texts: list[str]) -> list[list[float]]:
        rows = super()._embed_queries(texts)
        if rows:
            self.length = float(np.linalg.norm(np.asarray(rows[0], dtype=np.float64))) or 1.0
        return rows


def _search_text(question: str, history: Sequence[Turn]) -> str:
    return " ".join([*(asked for asked, _ in history[-1:] if asked), question])
