"""The retriever over a LangChain vector store: its candidates, ranked by sparse Hopfield association."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore
from pydantic import Field, SkipValidation

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import Encoder
from langgraph_convcoa.retrieval.memory import EMPTY, Memory
from langgraph_convcoa.retrieval.query.conversation_state import History
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.retriever_memory import View
from langgraph_convcoa.retrieval.scoring.patterns import PatternType
from langgraph_convcoa.retrieval.scoring.topk import Ranking
from langgraph_convcoa.retrieval.vectorstore import VectorStoreStage


class VectorStoreRetriever(HopfieldRetriever):
    """`HopfieldRetriever` over a vector store that the user has: the store finds candidates, this ranks them.

    Scores are exact for the candidates; what the store does not name cannot be found, so that nothing here is certified.
    `filter` is applied to the candidates; the store's own filters go in `search_kwargs`. There is no lexical channel, since
    words are weighed over all passages. Documents are added to and deleted from the store itself.

    Attributes:
        stage: The store and what is fetched from it.

    Raises:
        InputError: As from `HopfieldRetriever`; or a change is asked for that is the store's.
        RetrievalError: The store fails, or its documents cannot be encoded.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> store = InMemoryVectorStore.from_texts(["Ada wrote it.", "BM25 counts."], DeterministicFakeEmbedding(size=16))
        >>> retriever = VectorStoreRetriever.from_vectorstore(store, k=1)
        >>> [document.page_content for document in retriever.invoke("Ada wrote it.")]
        ['Ada wrote it.']
    """

    stage: SkipValidation[VectorStoreStage] = Field(repr=False, exclude=True)

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
    ) -> Self:
        """A retriever over a store.

        Args:
            store: Any LangChain `VectorStore`.
            encoder: Encodes windows and questions; the store's own embeddings when None, where it names them.
            candidates: How many documents are fetched a question, at least k of them.
            search_kwargs: What every search of the store is given, such as `filter`, in the store's own form.
            cache: Where encoded windows are kept between runs: a `PatternCache` or the path of one.
            **settings: The class's other attributes.
        """
        kept = PatternCache(cache) if isinstance(cache, str | Path) else cache
        stage = VectorStoreStage(store, encoder, candidates=candidates, search_kwargs=search_kwargs, cache=kept)
        return cls(memory=EMPTY, encoder=stage.encoder, stage=stage, **settings)

    def search_batch(
        self, queries: Sequence[str], histories: Sequence[History | None] | None = None, k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        limit, turns, states = self._asked_many(queries, histories, k)
        found = []
        for query, history, state in zip(queries, turns, states, strict=True):
            memory = self.stage.fetch(query, history, k=limit, state=state, **self._conversation())
            hits = self._hits(memory, [query], state[None], limit)[0]
            found.append([(str(hit.passage.document.id), hit.score) for hit in hits])
        return found

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        history: History | None = None,
    ) -> list[Document]:
        limit, turns, states = self._asked(query, k, history)
        memory = self.stage.fetch(query, turns, k=limit, state=states[0], **self._conversation())
        return self._ranked(memory, query, states, limit)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        history: History | None = None,
    ) -> list[Document]:
        limit, turns, states = await run_in_executor(None, self._asked, query, k, history)
        memory = await self.stage.afetch(query, turns, k=limit, state=states[0], **self._conversation())
        return await run_in_executor(None, self._ranked, memory, query, states, limit)

    def _conversation(self) -> dict[str, Any]:
        return {"history_weight": self.history_weight, "history_beta": self.history_beta}

    def _ranked(self, memory: Memory, query: str, states: Vectors, k: int) -> list[Document]:
        hits = self._hits(memory, [query], states, k, self.score_threshold)[0]
        return [self._document(memory, hit, states[0]) for hit in hits]

    def _rankings(self, view: View, queries: Sequence[str], states: Vectors, k: int) -> list[Ranking]:
        # The best of the candidates, whatever the store did not name.
        return [replace(ranking, certified=False) for ranking in super()._rankings(view, queries, states, k)]

    def _lexical_scores(self, view: View, queries: Sequence[str]) -> Vectors | None:
        return None

    def save_pretrained(self, path: str | Path, *, dtype: PatternType | None = None) -> NoReturn:
        raise InputError(_THE_STORES)

    def add_documents(self, documents: Iterable[Document], **_settings: Any) -> NoReturn:
        raise InputError(_THE_STORES)

    def update(self, documents: Iterable[Document], **_settings: Any) -> NoReturn:
        raise InputError(_THE_STORES)

    def delete(self, ids: Iterable[str]) -> NoReturn:
        raise InputError(_THE_STORES)


_THE_STORES = "This retriever is over a vector store, which keeps the documents: save and change the store itself."
