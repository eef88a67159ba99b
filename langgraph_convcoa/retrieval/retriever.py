"""The retriever: sparse Hopfield retrieval behind LangChain's interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import LangSmithRetrieverParams
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore
from pydantic import ValidationError

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import Encoder, as_encoder
from langgraph_convcoa.retrieval.hits import named_documents
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateStage, approximate_settings
from langgraph_convcoa.retrieval.index.index import Index, open_or_create
from langgraph_convcoa.retrieval.memory import EMPTY, Memory, build_memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.conversation_state import History, StateEncoder
from langgraph_convcoa.retrieval.query.model import RetrieverModel, model_for
from langgraph_convcoa.retrieval.retriever_inputs import checked_documents, history_runnable
from langgraph_convcoa.retrieval.retriever_model import opened_model, own_encoder
from langgraph_convcoa.retrieval.retriever_search import SearchingRetriever
from langgraph_convcoa.retrieval.scoring.patterns import PatternType


class HopfieldRetriever(SearchingRetriever):
    """Retrieve passages by sparse Hopfield association, in conversation, without a model call (Pan et al. 2024b, section 4).

    A passage is a memory set: a pattern of the whole and one for each window of up to three sentences. Its score for a query
    state x is w <x, y_0> + sim(z, x), where z is what the windows give back to x. Earlier turns are a memory too, which pulls
    the state towards them: normalise(x + lambda sparsemax(beta_h x H^T) H). Make one with `from_documents` or `from_texts`.

    Every returned document is new, has an id, and in its metadata `source`, `score`, `quote`, the window that matched best,
    and `certified`: whether its ranking is certainly the exact one of all that is stored, as it always is unless `approximate`
    is set or a vector store found the candidates. Of a query longer than the encoder reads (256 tokens by default) the start
    counts.

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
        approximate: None searches everything, exactly. For memories of millions of patterns, True or `ApproximateSettings`: an
            HNSW graph names candidates, which are scored exactly (extra `approximate`). Up to ten times as many passages as
            candidates (2,000) the search is exact all the same.
        memory: The passages and their patterns, in memory or an `Index` on disk.
        encoder: What encodes the queries, and encoded the memory.
        model: What training gave the query's side: "default" (the model that comes with the package), "untrained", a folder
            that `convcoa train` made, or a `RetrieverModel`. When None, "default" with the default encoder, else "untrained".

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

    def __init__(
        self,
        *,
        memory: Memory | Index,
        encoder: Encoder | Embeddings | str | None = None,
        model: RetrieverModel | str | Path | None = None,
        **settings: Any,
    ) -> None:
        named = opened_model(model, memory)
        kept = as_encoder(own_encoder(named) if encoder is None else encoder)
        opened = model_for(named, kept)
        settings = {**(opened.settings if opened else {}), **settings}
        settings |= {"memory": memory, "encoder": kept, "model": opened or named}
        if isinstance(settings.get("approximate"), Mapping):
            settings["approximate"] = approximate_settings(settings["approximate"])
        try:
            super().__init__(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"The retriever's setting {'.'.join(map(str, first['loc']))!r}: {first['msg']}.") from None
        self._states = StateEncoder(self.encoder, model=opened)
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
            dtype: How patterns are stored: "float32" (also when None) or "int8".
            cache: Where encoded patterns are kept between runs: a `PatternCache` or the path of one.
            progress: True for a bar on standard error, or a function called with (done, total).
            **settings: The class's other attributes, such as `approximate=True`.

        Raises:
            InputError: A setting is out of range.
            RetrievalError: No document has text, an id is used twice, the documents cannot be encoded, the index cannot be
                used, or usearch is not installed for an approximate search.
        """
        # Made before its memory, so that bad settings are told before minutes of encoding.
        retriever = cls(memory=EMPTY, encoder=encoder, k=k, **settings)
        stage = approximate_settings(retriever.approximate)
        if stage is not None:
            ApproximateStage(1)
        documents = checked_documents(documents)
        store = PatternCache(cache) if isinstance(cache, str | Path) else cache
        if path is None:
            memory = build_memory(documents, retriever.encoder, cache=store, progress=progress, dtype=dtype or "float32")
            retriever.memory = memory
            if stage is not None:
                weight = retriever.passage_weight
                retriever.linked.follow(memory, stage, passage_weight=weight, progress=progress, everything=True)
            return retriever
        index = open_or_create(path, retriever.encoder, dtype, retriever._settings(), approximate=stage)
        retriever.memory = index
        retriever.add_documents(documents, cache=store, progress=progress)
        index.save_lexical()
        if stage is not None:
            index.save_approximate(stage, passage_weight=retriever.passage_weight, progress=progress)
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
        limit, _, states = self._asked_many(queries, histories, k)
        found = self._search(queries, states, limit)[1]
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
        limit, _, states = self._asked(query, k, history)
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
