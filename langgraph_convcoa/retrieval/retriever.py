"""The retriever: sparse Hopfield retrieval behind LangChain's interface."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import LangSmithRetrieverParams
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, PrivateAttr, ValidationError

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.base import Vectors
from langgraph_convcoa.retrieval.cache import PatternCache
from langgraph_convcoa.retrieval.conversation import History, StateEncoder, Turn, history_pairs
from langgraph_convcoa.retrieval.encoder import Encoder, as_encoder
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hits import Hit, best_sets, hit_document, named_documents
from langgraph_convcoa.retrieval.index import Index
from langgraph_convcoa.retrieval.index_documents import Outdated
from langgraph_convcoa.retrieval.index_open import open_or_create
from langgraph_convcoa.retrieval.memory import EMPTY, Memory, build_memory
from langgraph_convcoa.retrieval.patterns import PatternType
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.retriever_inputs import history_runnable, query_text
from langgraph_convcoa.retrieval.retriever_memory import MemoryRetriever, View, allowed, fetch
from langgraph_convcoa.retrieval.scoring import Ranking, check_settings, search

_SEARCHES = 5


class HopfieldRetriever(MemoryRetriever):
    """Retrieve passages by sparse Hopfield association, in conversation, without a model call (papers/000 section 4).

    A passage is a memory set: a pattern of the whole and one for each window of up to three sentences. Its score for a query
    state x is w <x, y_0> + sim(z, x), where z is what the windows give back to x. Earlier turns are a memory too, which pulls
    the state towards them: normalise(x + lambda sparsemax(beta_h x H^T) H). Make one with `from_documents` or `from_texts`.

    Every returned document is new, has an id, and in its metadata `source`, `score` and `quote`, the window that matched
    best. Of a query longer than the encoder reads (256 tokens by default) the start counts.

    Attributes:
        k: How many documents are returned, at most.
        beta: Inverse temperature of the association: 0 for the mean of the windows, infinity for the best.
        passage_weight: w, the weight of the whole-passage pattern.
        lexical_weight: Weight of the lexical channel, BM25 of the question over its best score; 0 leaves it out.
        history_weight: lambda, how far earlier turns pull the query.
        history_beta: beta_h, inverse temperature of the association with earlier turns.
        score_threshold: Documents below this score are left out.
        filter: Metadata that documents must have, or a function that says whether a document may be returned.
        return_association: Put under `association` which windows matched: [{text, start, end, weight}].
        memory: The passages and their patterns, in memory or an `Index` on disk.
        encoder: What encodes the queries, and encoded the memory.

    Raises:
        InputError: A setting, the query or the history cannot be used; on construction or `invoke`.
        RetrievalError: The documents or the encoder's vectors cannot be used.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> texts = ["A Hopfield network stores patterns.", "BM25 counts words."]
        >>> retriever = HopfieldRetriever.from_texts(texts, encoder=DeterministicFakeEmbedding(size=16), ids=["a", "b"], k=1)
        >>> [document.id for document in retriever.invoke("BM25 counts words.")]
        ['b']
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    k: int = 5
    beta: float = 10.0
    passage_weight: float = 1.0
    lexical_weight: float = 0.1
    history_weight: float = 0.6
    history_beta: float = 1.0
    score_threshold: float | None = None
    filter: Filter | None = None
    return_association: bool = False

    _states: StateEncoder = PrivateAttr()

    def __init__(self, *, memory: Memory | Index, encoder: Encoder | Embeddings | str | None = None, **settings: Any) -> None:
        settings |= {"memory": memory, "encoder": as_encoder(encoder)}
        try:
            super().__init__(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"The retriever's setting {'.'.join(map(str, first['loc']))!r}: {first['msg']}.") from None
        self._states = StateEncoder(self.encoder)
        self._check(self.k)

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        *,
        k: int = 5,
        encoder: Encoder | Embeddings | str | None = None,
        path: str | Path | None = None,
        dtype: PatternType | None = None,
        cache: PatternCache | str | Path | None = None,
        progress: Progress = False,
        **settings: Any,
    ) -> HopfieldRetriever:
        """Encode documents and make a retriever over them, in memory or in an index on disk.

        Args:
            documents: Long ones are split into passages `{id}#{n}`; `metadata["title"]` is encoded with the text.
            k: How many documents are returned, at most.
            encoder: An encoder, LangChain embeddings or a model name; all-MiniLM-L6-v2 when None.
            path: A folder for an index on disk. It is made there, read and encoded batch by batch; where it is already,
                documents that it does not have are added, so that a run that was killed can be run again.
            dtype: How patterns are stored: "float32" (also when None), "float16", "bfloat16" or "int8".
            cache: Where encoded patterns are kept between runs: a `PatternCache` or the path of one.
            progress: True for a bar on standard error, or a function called with (done, total).
            **settings: The class's other attributes.

        Raises:
            InputError: A setting is out of range.
            RetrievalError: No document has text, an id is used twice, the documents cannot be encoded, or the index cannot be
                used.
        """
        # Made before its memory, so that bad settings are told before minutes of encoding.
        retriever = cls(memory=EMPTY, encoder=encoder, k=k, **settings)
        store = PatternCache(cache) if isinstance(cache, str | Path) else cache
        if path is None:
            retriever.memory = build_memory(
                documents, retriever.encoder, cache=store, progress=progress, dtype=dtype or "float32"
            )
            return retriever
        retriever.memory = open_or_create(path, retriever.encoder, dtype, retriever._settings())
        retriever.add_documents(documents, cache=store, progress=progress)
        retriever.memory.save_lexical()
        return retriever

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        metadatas: Iterable[dict[str, Any]] | None = None,
        *,
        ids: Iterable[str] | None = None,
        **settings: Any,
    ) -> HopfieldRetriever:
        """`from_documents` for plain texts, with their metadata and ids where given, in the same order.

        Raises:
            InputError: There are not as many metadatas or ids as texts.
        """
        return cls.from_documents(named_documents(texts, metadatas, ids), **settings)

    @classmethod
    def from_vectorstore(
        cls,
        store: VectorStore,
        *,
        encoder: Encoder | Embeddings | str | None = None,
        candidates: int = 32,
        search_kwargs: Mapping[str, Any] | None = None,
        cache: PatternCache | str | Path | None = None,
        **settings: Any,
    ) -> HopfieldRetriever:
        """A retriever over a vector store: it finds candidates, which are ranked here (`VectorStoreRetriever`)."""
        from langgraph_convcoa.retrieval.vectorstore_retriever import VectorStoreRetriever

        return VectorStoreRetriever.from_vectorstore(
            store, encoder=encoder, candidates=candidates, search_kwargs=search_kwargs, cache=cache, **settings
        )

    def search_batch(
        self, queries: Sequence[str], histories: Sequence[History | None] | None = None, k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """The ids and scores of the best passages for each of many queries, best first.

        Args:
            queries: n questions.
            histories: n histories, or None where no question has one.
            k: How many passages a query; the retriever's k when None.

        Raises:
            InputError: A query is empty, a history or k cannot be used.
        """
        limit = self.k if k is None else k
        self._check(limit)
        turns = [history_pairs(history) for history in histories] if histories is not None else [[] for _ in queries]
        if len(turns) != len(queries):
            raise InputError(f"There are {len(queries)} queries and {len(turns)} histories; give one of each.")
        found = self._search(queries, self._encode(queries, turns), limit)[1]
        return [[(str(hit.passage.document.id), hit.score) for hit in hits] for hits in found]

    def history_aware(self) -> Runnable[dict[str, Any], list[Document]]:
        """The retriever on `{"input": str, "chat_history": list[BaseMessage]}`.

        It stands where LangChain's `create_history_aware_retriever` stood, and makes no model call; `chat_history` may be
        absent, and may end with the input itself.

        Example:
            >>> from langchain_core.embeddings import DeterministicFakeEmbedding
            >>> retriever = HopfieldRetriever.from_texts(["Ada wrote it."], encoder=DeterministicFakeEmbedding(size=16))
            >>> documents = retriever.history_aware().invoke({"input": "who wrote it?", "chat_history": []})
            >>> documents[0].page_content
            'Ada wrote it.'
        """
        return history_runnable(self)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        history: History | None = None,
    ) -> list[Document]:
        limit = self.k if k is None else k
        self._check(limit)
        states = self._encode([query], [history_pairs(history)])
        view, found = self._search([query], states, limit, self.score_threshold)
        return [self._document(view, hit, states[0]) for hit in found[0]]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        history: History | None = None,
    ) -> list[Document]:
        def retrieve() -> list[Document]:
            return self._get_relevant_documents(query, k=k, history=history)

        return await run_in_executor(None, retrieve)

    def _get_ls_params(self, **_kwargs: Any) -> LangSmithRetrieverParams:
        return LangSmithRetrieverParams(ls_retriever_name="hopfield", ls_embedding_provider=type(self.encoder).__name__)

    def _check(self, k: int) -> None:
        check_settings(k, self.beta, self.passage_weight)
        if not 0 <= self.history_weight < math.inf:
            raise InputError(f"history_weight must be a number of at least 0, not {self.history_weight}.")
        if not 0 <= self.lexical_weight < math.inf:
            raise InputError(f"lexical_weight must be a number of at least 0, not {self.lexical_weight}.")
        if math.isnan(self.history_beta) or self.history_beta < 0:
            raise InputError(f"history_beta must be from 0 to infinity, not {self.history_beta}.")

    def _encode(self, queries: Sequence[str], histories: Sequence[list[Turn]]) -> Vectors:
        texts = [query_text(query) for query in queries]
        # An app that appends the new question to its messages first hands it over twice.
        turns = [
            history[:-1] if history and history[-1] == (text, "") else history
            for text, history in zip(texts, histories, strict=True)
        ]
        return self._states.states(texts, turns, history_weight=self.history_weight, history_beta=self.history_beta)

    def _search(
        self, queries: Sequence[str], states: Vectors, k: int, threshold: float | None = None
    ) -> tuple[View, list[list[Hit]]]:
        """The best passages for each query state, and the memory as it was searched."""
        for attempt in range(_SEARCHES):
            view = self._view()
            try:
                rankings = self._rankings(view, queries, states, k)
            except Outdated:
                if attempt == _SEARCHES - 1:
                    raise
                continue
            kept = [best_sets(ranking, threshold) for ranking in rankings]
            numbers = sorted({number for hits in kept for number, _ in hits})
            try:
                passages = dict(zip(numbers, fetch(view, numbers), strict=True))
            except Outdated:
                if attempt == _SEARCHES - 1:
                    raise
                continue
            return view, [[Hit(number, score, passages[number]) for number, score in hits] for hits in kept]
        raise AssertionError

    def _rankings(self, view: View, queries: Sequence[str], states: Vectors, k: int) -> list[Ranking]:
        if not len(view):
            nothing = np.zeros(0, dtype=np.int64)
            return [Ranking(nothing, nothing.astype(np.float64), True, 0) for _ in states]
        extra = np.float32(self.lexical_weight) * self._lexical().scores(view, queries) if self.lexical_weight else None
        return search(
            view.patterns,
            states,
            k=k,
            beta=self.beta,
            passage_weight=self.passage_weight,
            allowed=allowed(view, self.filter),
            extra=extra,
        )

    def _document(self, view: View, hit: Hit, state: Vectors) -> Document:
        return hit_document(view.patterns, hit, state, beta=self.beta, association=self.return_association)
