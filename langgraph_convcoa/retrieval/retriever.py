"""The retriever: sparse Hopfield retrieval behind LangChain's interface."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import run_in_executor
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation, ValidationError

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.base import Vectors
from langgraph_convcoa.retrieval.cache import PatternCache
from langgraph_convcoa.retrieval.conversation import History, StateEncoder, Turn, history_pairs
from langgraph_convcoa.retrieval.encoder import Encoder, as_encoder
from langgraph_convcoa.retrieval.filters import Filter, allowed_passages
from langgraph_convcoa.retrieval.memory import EMPTY, Memory, build_memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring import associate, check_settings, search


class HopfieldRetriever(BaseRetriever):
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
        history_weight: lambda, how far earlier turns pull the query.
        history_beta: beta_h, inverse temperature of the association with earlier turns.
        score_threshold: Documents below this score are left out.
        filter: Metadata that documents must have, or a function that says whether a document may be returned.
        return_association: Put under `association` which windows matched: [{text, start, end, weight}].
        memory: The passages and their patterns.
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
    history_weight: float = 0.6
    history_beta: float = 1.0
    score_threshold: float | None = None
    filter: Filter | None = None
    return_association: bool = False

    # Fields, so that `configurable_fields`, which makes a new object of an old one's fields, takes them along; never dumped.
    memory: SkipValidation[Memory] = Field(repr=False, exclude=True)
    encoder: SkipValidation[Encoder] = Field(repr=False, exclude=True)

    _states: StateEncoder = PrivateAttr()

    def __init__(self, *, memory: Memory, encoder: Encoder | Embeddings | str | None = None, **settings: Any) -> None:
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
        cache: PatternCache | str | Path | None = None,
        progress: Progress = False,
        **settings: Any,
    ) -> HopfieldRetriever:
        """Encode documents and make a retriever over them, in memory.

        Args:
            documents: Long ones are split into passages `{id}#{n}`; `metadata["title"]` is encoded with the text.
            k: How many documents are returned, at most.
            encoder: An encoder, LangChain embeddings or a model name; all-MiniLM-L6-v2 when None.
            cache: Where encoded patterns are kept between runs: a `PatternCache` or the path of one.
            progress: True for a bar on standard error, or a function called with (done, total).
            **settings: The class's other attributes.

        Raises:
            InputError: A setting is out of range.
            RetrievalError: No document has text, an id is used twice, or the documents cannot be encoded.
        """
        # Made before its memory, so that bad settings are told before minutes of encoding.
        retriever = cls(memory=EMPTY, encoder=encoder, k=k, **settings)
        store = PatternCache(cache) if isinstance(cache, str | Path) else cache
        retriever.memory = build_memory(documents, retriever.encoder, cache=store, progress=progress)
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
        bodies = list(texts)
        data = [{} for _ in bodies] if metadatas is None else list(metadatas)
        names = [None for _ in bodies] if ids is None else list(ids)
        if not len(bodies) == len(data) == len(names):
            raise InputError(f"There are {len(bodies)} texts, {len(data)} metadatas and {len(names)} ids; give one of each.")
        documents = [Document(id=i, page_content=t, metadata=m) for t, m, i in zip(bodies, data, names, strict=True)]
        return cls.from_documents(documents, **settings)

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
        states = self._encode(queries, turns)
        found = search(
            self.memory,
            states,
            k=limit,
            beta=self.beta,
            passage_weight=self.passage_weight,
            allowed=allowed_passages(self.memory.passages, self.filter),
        )
        return [
            [(str(self.memory.passages[i].id), float(s)) for i, s in zip(ranking.indices, ranking.scores, strict=True)]
            for ranking in found
        ]

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

        def retrieve(inputs: dict[str, Any], config: RunnableConfig) -> list[Document]:
            query, history = _conversation(inputs)
            return self.invoke(query, config, history=history)

        async def aretrieve(inputs: dict[str, Any], config: RunnableConfig) -> list[Document]:
            query, history = _conversation(inputs)
            return await self.ainvoke(query, config, history=history)

        return RunnableLambda(retrieve, afunc=aretrieve, name="history_aware_retriever")

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
        state = self._encode([query], [history_pairs(history)])
        allowed = allowed_passages(self.memory.passages, self.filter)
        ranking = search(self.memory, state, k=limit, beta=self.beta, passage_weight=self.passage_weight, allowed=allowed)[0]
        return [
            self._document(int(index), float(score), state[0])
            for index, score in zip(ranking.indices, ranking.scores, strict=True)
            if self.score_threshold is None or score >= self.score_threshold
        ]

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
        if math.isnan(self.history_beta) or self.history_beta < 0:
            raise InputError(f"history_beta must be from 0 to infinity, not {self.history_beta}.")

    def _encode(self, queries: Sequence[str], histories: Sequence[list[Turn]]) -> Vectors:
        texts = [_query_text(query) for query in queries]
        # An app that appends the new question to its messages first hands it over twice.
        turns = [
            history[:-1] if history and history[-1] == (text, "") else history
            for text, history in zip(texts, histories, strict=True)
        ]
        return self._states.states(texts, turns, history_weight=self.history_weight, history_beta=self.history_beta)

    def _document(self, index: int, score: float, state: Vectors) -> Document:
        passage = self.memory.passages[index]
        weights, products = associate(self.memory, index, state, self.beta)
        spans = self.memory.set_spans(index)
        texts = [passage.page_content[start:end] for start, end in spans]
        metadata = copy.deepcopy(passage.metadata)
        metadata.setdefault("source", str(metadata.get("document_id") or passage.id))
        # By product where weights are equal, as all are at beta = 0.
        best = max(range(len(texts)), key=lambda i: (weights[i], products[i]))
        metadata |= {"score": score, "quote": texts[best]}
        if self.return_association:
            metadata["association"] = [
                {"text": text, "start": start, "end": end, "weight": float(weight)}
                for text, (start, end), weight in zip(texts, spans, weights, strict=True)
            ]
        return Document(id=passage.id, page_content=passage.page_content, metadata=metadata)


def _query_text(query: str) -> str:
    if not isinstance(query, str):
        raise InputError(f"The question must be a string, not {type(query).__name__}.")
    text = query.strip().encode("utf-8", "replace").decode()
    if not text:
        raise InputError("The question is empty; write one.")
    return text


def _conversation(inputs: Mapping[str, Any]) -> tuple[str, History]:
    if not isinstance(inputs, Mapping) or "input" not in inputs:
        raise InputError('The history-aware retriever takes {"input": question, "chat_history": messages}.')
    return inputs["input"], inputs.get("chat_history") or []
