"""The retriever: sparse Hopfield retrieval behind LangChain's interface.

`invoke` makes a `Query` with the state of its question (`query.conversation_state`). The default model changes no setting, and
changes the state only if there are earlier turns. `search` scores the passages of a view, the current state of the corpus
(`search.top_k` has the formula). By default, BM25 is added, and a walk on the evidence graph decides the final order.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool
from langchain_core.vectorstores import VectorStore
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SkipValidation, ValidationError

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.corpus import ATTEMPTS, Corpus, StaleSnapshot, View
from langgraph_convcoa.retrieval.editing import EditableRetriever, as_cache, checked_documents, text_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder, encoder_from_settings
from langgraph_convcoa.retrieval.engine.base import Engine
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.corpus import CANDIDATES, EngineCorpus
from langgraph_convcoa.retrieval.filters import Filter, predicate
from langgraph_convcoa.retrieval.graph.settings import GraphSettings, graph_settings
from langgraph_convcoa.retrieval.index.database import SHARDS_REMOVED
from langgraph_convcoa.retrieval.index.index import Index, open_or_create, save_index
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory, empty_memory
from langgraph_convcoa.retrieval.patterns import PatternType
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.conversation_state import History, Query, StateEncoder, checked_questions, messages_of
from langgraph_convcoa.retrieval.query.model import MODEL_FOLDER, RetrieverModel, model_for, opened_model, stated_model
from langgraph_convcoa.retrieval.reranker import Reranker, as_reranker
from langgraph_convcoa.retrieval.search import Hit, check_settings, hit_document, search, with_neighbours
from langgraph_convcoa.retrieval.vectorstore import VectorStoreCorpus

_LOGGER = logging.getLogger(__name__)


class HopfieldRetriever(EditableRetriever):
    """Retrieve passages by sparse Hopfield association, in conversation, without a model call (Pan et al. 2024b, section 4).

    A passage is a set of patterns: y_0 for the whole passage and one for each window of up to three sentences. Its score for a
    query state x is w <x, y_0> + sim(z, x), where z is the pattern that the windows return for x, plus weighted BM25. The last
    100 turns are a memory too: the state is normalise(x + lambda sparsemax(beta_h x H^T) H). If there are earlier turns, the
    default model mixes it with the vector of its query encoder (`StateEncoder`).

    A call may override `k`, `history`, `filter`, `score_threshold` and `graph`. With `neighbours=n`, a part of a long document
    is returned with up to n parts before and after it. Its metadata has `part`, [start, end] of the found part in the text.

    The metadata of a returned document has `source`, `score`, `quote` (the best window) and `certified`: True if its ranking
    is proved to be exact. `==` on documents ignores all of these except `source`. A query is cut off at the encoder's length.

    Attributes:
        k: Largest number of returned documents.
        beta: Inverse temperature of the association: 0 takes the mean of the windows, infinity the best window.
        passage_weight: w, the weight of the whole-passage pattern.
        lexical_weight: Weight of the question's BM25 scores, after division by the best of them; 0 turns BM25 off.
        lexical_history: Weight of a second BM25 score, which counts the words of a follow-up and of the earlier turns.
        history_weight: lambda, the weight of earlier turns.
        history_beta: beta_h, inverse temperature of the association with earlier turns.
        score_threshold: The lowest score of a returned document.
        filter: Metadata that passages must have (`filters.predicate`), or a function that accepts a passage.
        return_association: Return the weights of the windows under `association`: [{text, start, end, weight}].
        graph: True or `GraphSettings` ranks passages by a walk along the evidence graph, from the best passages and the names
            in the question. Scores stay those of the search, so they need not descend. `graph_path` is the path to a passage
            that the walk raised. Vector stores, engines, and indexes that were made without a graph have no graph.
        rerank: How many passages the reranker reads with the question, such as 20; 0 for none. They are ranked by the score
            plus the weighted logit. `score` stays that of the search and need not descend, and `certified` is about the
            search. Rankings got better for encyclopaedic and multi-hop questions, and worse on MTRAG: try your own questions.
        reranker: "default" (in the package), the name of a sentence-transformers `CrossEncoder`, or a `Reranker`. A name is
            saved with an index, an object is not.
        corpus: Passages in memory, an index on disk, a vector store or an engine. `model_copy` shares it.
        encoder: The encoder of the queries and the corpus.
        model: The trained query side: "default" (in the package), "untrained", a folder that `convcoa train` made, or a
            `RetrieverModel`. None means "default" with the default encoder, else "untrained".

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
    lexical_history: float = 0.5
    history_weight: float = 0.6
    history_beta: float = 1.0
    score_threshold: float | None = None
    filter: Filter | None = None
    return_association: bool = False
    graph: bool | GraphSettings | None = True
    rerank: int = 0

    reranker: SkipValidation[Reranker | str] = Field(default="default", repr=False, exclude=True)
    model: SkipValidation[RetrieverModel | str | Path | None] = Field(default=None, repr=False, exclude=True)

    _states: StateEncoder = PrivateAttr()

    def __init__(
        self,
        *,
        corpus: Corpus,
        encoder: Encoder | Embeddings | str | None = None,
        model: RetrieverModel | str | Path | None = None,
        **settings: Any,
    ) -> None:
        if "approximate" in settings:
            raise InputError(
                "The setting 'approximate' was removed. Leave it out: the search is exact. For millions of passages load them "
                "into an engine and use HopfieldRetriever.from_engine."
            )
        named = opened_model(model, corpus.path)
        kept = as_encoder(encoder)
        opened = model_for(named, kept)
        settings = {**corpus.default_settings(), **(opened.settings if opened else {}), **settings}
        settings |= {"corpus": corpus, "encoder": kept, "model": opened or named}
        if isinstance(settings.get("graph"), Mapping):
            settings["graph"] = graph_settings(settings["graph"])
        try:
            super().__init__(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"The retriever's setting {'.'.join(map(str, first['loc']))!r}: {first['msg']}.") from None
        self._states = StateEncoder(self.encoder, model=opened)
        self._check()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("encoder", "model"):
            value = as_encoder(value) if name == "encoder" else opened_model(value, self.corpus.path)
            now: dict[str, Any] = {"encoder": self.encoder, "model": self.model, name: value}
            self._states = StateEncoder(now["encoder"], model=model_for(now["model"], now["encoder"]))
        super().__setattr__(name, value)

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
    ) -> Self:
        """Encode documents and make a retriever over them, in memory or in an index on disk.

        Args:
            documents: Long documents are split into passages `{id}#{n}`; `metadata["title"]` is encoded with the text.
            k: Largest number of returned documents.
            encoder: An encoder, LangChain embeddings or a model name; all-MiniLM-L6-v2 when None.
            path: A folder for an index on disk. If it holds an index, the documents are added to it.
            dtype: The type of stored patterns: "float32" (also when None) or "int8".
            cache: A `PatternCache`, or its path, that keeps encoded patterns between runs.
            progress: True for a bar on standard error, or a function called with (done, total).
            **settings: The class's other attributes, such as `beta=20.0`.

        Raises:
            RetrievalError: No document has text, an id is used twice, or the documents cannot be encoded or stored.
        """
        # Check the settings before minutes of encoding.
        retriever = cls(corpus=MemoryCorpus(), encoder=encoder, k=k, **settings)
        documents, store = checked_documents(documents), as_cache(cache)
        if path is None:
            given, dtype = list(documents), dtype or "float32"
            memory = empty_memory(dtype)
            if given:
                memory = build_memory(given, retriever.encoder, cache=store, progress=progress, dtype=dtype)
            retriever.corpus = corpus = MemoryCorpus(memory)
            if graph_settings(retriever.graph) is not None:
                corpus.graph.links(memory)
            return retriever
        index = open_or_create(path, retriever.encoder, dtype, retriever._settings())
        if len(index):
            _LOGGER.warning("%s exists: the documents are added to its %d passage(s).", path, len(index))
        retriever.corpus = index
        retriever.add_documents(documents, cache=store, progress=progress)
        index.save_lexical()
        if graph_settings(retriever.graph) is not None:
            index.save_graph()
        return retriever

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        metadatas: Iterable[dict[str, Any]] | None = None,
        *,
        ids: Iterable[str] | None = None,
        **settings: Any,
    ) -> Self:
        """`from_documents` for plain texts, with metadata and ids in the same order."""
        return cls.from_documents(text_documents(texts, metadatas, ids), **settings)

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
        """A retriever over a vector store: the store names candidates, and the exact score ranks them.

        Only candidates can be found, so nothing is certified, and there is no BM25. Add and delete documents in the store.

        Args:
            store: Any LangChain `VectorStore`.
            encoder: The encoder of windows and questions. None means the store's own embeddings, if the store names them.
            candidates: Number of documents that are fetched for a question, at least k. `filter` is applied to these.
            search_kwargs: Arguments of every search of the store, such as `filter` in the store's own form.
            cache: A `PatternCache`, or its path, that keeps encoded windows between runs.
            **settings: The class's other attributes.
        """
        corpus = VectorStoreCorpus(store, encoder, candidates=candidates, search_kwargs=search_kwargs, cache=as_cache(cache))
        return cls(corpus=corpus, encoder=corpus.encoder, **settings)

    @classmethod
    def from_engine(
        cls,
        engine: Engine | str,
        *,
        collection: str | None = None,
        tenant: str | None = None,
        encoder: Encoder | Embeddings | str | None = None,
        candidates: int = CANDIDATES,
        timeout: float = 10.0,
        **settings: Any,
    ) -> Self:
        """A retriever over an engine, PostgreSQL with pgvector or Milvus, for many passages, writers and programs.

        The engine names candidates by vector and by BM25; the exact score ranks them. Only candidates can be found, so
        nothing is certified. A `filter` must be a mapping. No evidence graph is used. The first addition makes the collection.

        Args:
            engine: An engine, or its address: postgresql://user@host:5432/database?collection=NAME&tenant=NAME.
            collection: Replaces the collection in the address.
            tenant: Owner of the passages; replaces the tenant in the address. Passages of other tenants are never seen.
            encoder: The encoder of the collection; all-MiniLM-L6-v2 when None.
            candidates: Passages that the engine names for a question by vector, and the same number by words; at least k.
            timeout: Seconds to wait for the engine's answer; then a RetrievalError is raised.
            **settings: The class's other attributes.

        Example:
            >>> HopfieldRetriever.from_engine("postgresql://localhost/docs?collection=manuals", k=3).corpus
            EngineCorpus(PostgresEngine(collection='manuals', tenant='default'))
        """
        if isinstance(engine, str):
            engine = open_engine(engine, collection=collection, tenant=tenant, timeout=timeout)
        return cls(corpus=EngineCorpus(engine, candidates=candidates), encoder=encoder, **settings)

    @classmethod
    def from_shards(cls, *_arguments: Any, **_settings: Any) -> NoReturn:
        """Raise InputError: shards were removed. Use one index or `from_engine`. The next release lacks this method."""
        raise InputError(SHARDS_REMOVED)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, encoder: Encoder | Embeddings | str | None = None, **settings: Any) -> Self:
        """Open an index that `save_pretrained`, `from_documents(path=...)` or `convcoa index` made. No pattern is read yet.

        Without an `encoder`, a sentence-transformers model is opened by its saved name. The `settings` replace saved ones;
        `graph=True` makes a missing graph at the first search. Raises InputError for a setting that is out of range, and
        RetrievalError if there is no index, or if it has another version or encoder, or is damaged.
        """
        index = Index(path)
        kept: Any = encoder_from_settings(index.head.model) if encoder is None and index.head.model else encoder
        retriever = cls(corpus=index, encoder=kept, **index.head.settings | settings)
        if encoder is not None:
            # Without `encoder`, the index's own encoder is loaded and checked at the first search.
            retriever.check_encoder()
        return retriever

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        history: History | None = None,
        filter: Filter | None = None,
        score_threshold: float | None = None,
        neighbours: int = 0,
        graph: bool | GraphSettings | None = None,
    ) -> list[Document]:
        options = {"k": k, "filter": filter, "score_threshold": score_threshold, "graph": graph}
        asked = self._query([query], [history], neighbours, **options)
        return self._documents(asked, self.corpus.view(asked))

    def _query(
        self, questions: Sequence[str], histories: Sequence[History | None], neighbours: int = 0, **options: Any
    ) -> Query:
        """Questions with their query states and the settings of the search; options that are not None replace settings."""
        if isinstance(neighbours, bool) or not isinstance(neighbours, int) or neighbours < 0:
            raise InputError(f"neighbours must be a whole number of at least 0, not {neighbours!r}.")
        given = {name: value for name, value in options.items() if value is not None}
        called = self.model_copy(update=given) if given else self
        called._check()
        texts, turns = checked_questions(questions, histories)
        weights = {"history_weight": self.history_weight, "history_beta": self.history_beta}
        return Query(
            questions,
            turns,
            self._states.states(texts, turns, **weights),
            called.k,
            self.encoder,
            beta=self.beta,
            passage_weight=self.passage_weight,
            lexical_weight=self.lexical_weight,
            lexical_history=self.lexical_history,
            filter=called.filter,
            score_threshold=called.score_threshold,
            graph=graph_settings(called.graph),
            rerank=self.rerank,
            reranker=as_reranker(self.reranker) if self.rerank else None,
            neighbours=neighbours,
            **weights,
        )

    def _check(self) -> None:
        """Raise InputError for a bad setting. Checked in each call, since settings can be changed at any time."""
        names = ("passage_weight", "history_weight", "lexical_weight", "lexical_history")
        weights = {name: getattr(self, name) for name in names}
        check_settings(self.k, beta=self.beta, history_beta=self.history_beta, **weights)
        if isinstance(self.rerank, bool) or not isinstance(self.rerank, int) or self.rerank < 0:
            raise InputError(f"rerank must be a whole number of at least 0, not {self.rerank!r:.60}.")
        as_reranker(self.reranker)
        threshold: object = self.score_threshold
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, Real) or math.isnan(threshold)):
            raise InputError(f"score_threshold must be a number or None, not {threshold!r:.60}.")
        if self.filter is not None:
            predicate(self.filter)
        graph_settings(self.graph)

    def _documents(self, query: Query, view: View) -> list[Document]:
        view, [hits] = self._search(query, view, paths=True)
        documents = [hit_document(view, hit, query, association=self.return_association) for hit in hits]
        return with_neighbours(self.corpus, view, hits, documents, query.neighbours) if query.neighbours else documents

    def _search(self, query: Query, view: View, *, paths: bool = False) -> tuple[View, list[list[Hit]]]:
        """The best passages for each question, and the view that was searched."""
        for _ in range(ATTEMPTS - 1):
            view.check_encoder(self.encoder)
            try:
                return view, search(self.corpus, view, query, paths=paths)
            except StaleSnapshot:
                view = self.corpus.view(query)
        return view, search(self.corpus, view, query, paths=paths)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        history: History | None = None,
        filter: Filter | None = None,
        score_threshold: float | None = None,
        neighbours: int = 0,
        graph: bool | GraphSettings | None = None,
    ) -> list[Document]:
        options = {"k": k, "filter": filter, "score_threshold": score_threshold, "graph": graph}
        asked = await run_in_executor(None, self._query, [query], [history], neighbours, **options)
        return await run_in_executor(None, self._documents, asked, await self.corpus.aview(asked))

    def search_batch(
        self,
        queries: Sequence[str],
        histories: Sequence[History | None] | None = None,
        k: int | None = None,
        *,
        filter: Filter | None = None,
        score_threshold: float | None = None,
    ) -> list[list[tuple[str, float]]]:
        """The ids and scores of the best passages for each query, best first; with `graph`, in the order of the walk.

        `histories` has a history or None for each query; the other arguments replace the retriever's settings.
        """
        if isinstance(queries, str):
            raise InputError("The queries are one string; give a list of questions.")
        histories = [None for _ in queries] if histories is None else histories
        query = self._query(queries, histories, k=k, filter=filter, score_threshold=score_threshold)
        parts = [query] if self.corpus.complete else [query.one(row) for row in range(len(queries))]
        found = [hits for part in parts for hits in self._search(part, self.corpus.view(part))[1]]
        return [[(str(hit.passage.document.id), hit.score) for hit in hits] for hits in found]

    def history_aware(self) -> Runnable[dict[str, Any] | str, list[Document]]:
        """Retrieve for `{"input": str, "chat_history": messages}`: a replacement for `create_history_aware_retriever`.

        It needs no model call. `chat_history` may be missing, or end with the input. A plain string has no history.
        """

        def arguments(inputs: Mapping[str, Any] | str) -> dict[str, Any]:
            if isinstance(inputs, str):
                return {"input": inputs}
            if not isinstance(inputs, Mapping) or "input" not in inputs:
                raise InputError('The history-aware retriever takes {"input": question, "chat_history": messages}.')
            return {"input": inputs["input"], "history": messages_of(inputs.get("chat_history")) or []}

        def retrieve(inputs: dict[str, Any] | str, config: RunnableConfig) -> list[Document]:
            return self.invoke(config=config, **arguments(inputs))

        async def aretrieve(inputs: dict[str, Any] | str, config: RunnableConfig) -> list[Document]:
            return await self.ainvoke(config=config, **arguments(inputs))

        return RunnableLambda(retrieve, afunc=aretrieve, name="history_aware_retriever")

    def as_tool(
        self,
        args_schema: type[BaseModel] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        arg_types: dict[str, type] | None = None,
    ) -> BaseTool:
        """Make a tool for an agent. It takes a `query`, and returns passages as text and documents as artifact.

        The earlier turns of the agent's conversation are the history of the search. With `args_schema` or `arg_types`,
        LangChain's plain tool is made instead.
        """
        from langgraph_convcoa.retrieval.tool import retriever_tool

        if args_schema is not None or arg_types is not None:
            return super().as_tool(args_schema, name=name, description=description, arg_types=arg_types)
        return retriever_tool(self, name, description)

    def check_encoder(self) -> None:
        """Load the encoder and compare it with the encoder of an index. Otherwise, the first search does this."""
        self.corpus.snapshot().check_encoder(self.encoder)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The corpus, the encoder and the settings that differ from the defaults."""
        yield "corpus", self.corpus
        yield "encoder", self.encoder
        if self.model is not None:
            yield "model", (self.model.source or "trained") if isinstance(self.model, RetrieverModel) else self.model
        yield "k", self.k
        for name, field in type(self).model_fields.items():
            if name not in ("corpus", "encoder", "model", "reranker", "k") and getattr(self, name) != field.default:
                yield name, getattr(self, name)

    def _get_ls_params(self, **_kwargs: Any) -> LangSmithRetrieverParams:
        return LangSmithRetrieverParams(ls_retriever_name="hopfield", ls_embedding_provider=type(self.encoder).__name__)

    def save_pretrained(self, path: str | Path, *, dtype: PatternType | None = None) -> None:
        """Save the corpus, the settings and a trained model as an index, completely or not at all.

        The folder `path` must be empty or missing, or hold an index, which is replaced. If it holds the searched index, only
        the settings are saved. Without `dtype`, the patterns keep their type. Raises InputError if an id or metadata cannot be
        stored, or the corpus is a vector store, and RetrievalError if the folder cannot be used or written to.
        """
        settings = self._settings() | {"model": stated_model(self.model)}
        if not self.corpus.keep_settings(path, settings, dtype):
            save_index(self.corpus, path, self.encoder, settings, dtype=dtype)
        if isinstance(self.model, RetrieverModel) and settings["model"] is not None:
            self.model.save(Path(path) / MODEL_FOLDER)

    def _settings(self) -> dict[str, Any]:
        settings = {}
        # Earlier releases refuse an index that has the settings of a reranker.
        left_out = {"corpus", "encoder", "model"} | (set() if self.rerank else {"rerank", "reranker"})
        for name in type(self).model_fields.keys() - BaseRetriever.model_fields.keys() - left_out:
            try:
                settings[name] = json.loads(json.dumps(getattr(self, name), default=_plain))
            except TypeError:
                _LOGGER.warning("The setting %s is a function or another object that is not saved.", name)
        return settings


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError
