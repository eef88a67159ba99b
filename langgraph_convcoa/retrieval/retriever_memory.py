"""What a retriever does with its memory: change it, save it and open it again, on disk or not."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from pydantic import BaseModel, Field, PrivateAttr, SkipValidation

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import Encoder
from langgraph_convcoa.retrieval.filters import Filter, allowed_passages
from langgraph_convcoa.retrieval.hybrid.ann import approximate_settings
from langgraph_convcoa.retrieval.hybrid.ann_channel import ApproximateChannel
from langgraph_convcoa.retrieval.hybrid.bm25_channel import LexicalChannel
from langgraph_convcoa.retrieval.index.documents import Passage
from langgraph_convcoa.retrieval.index.index import Index, encoder_of
from langgraph_convcoa.retrieval.index.snapshot import Snapshot
from langgraph_convcoa.retrieval.index.writer import save_memory
from langgraph_convcoa.retrieval.memory import Memory
from langgraph_convcoa.retrieval.memory_changes import with_documents, without
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.retriever_inputs import checked_documents
from langgraph_convcoa.retrieval.retriever_model import save_beside, stated_model
from langgraph_convcoa.retrieval.scoring.patterns import PatternType

_LOGGER = logging.getLogger(__name__)

View: TypeAlias = Memory | Snapshot
"""What one search sees from its start to its end."""


class MemoryRetriever(BaseRetriever):
    """A retriever over passages and their patterns, in memory or in an index on disk.

    Attributes:
        memory: The passages and their patterns.
        encoder: What encodes the queries, and encoded the memory.
        lexical: The words of a memory that is not on disk; an index keeps its own.
        linked: The approximate stage of a memory that is not on disk; an index keeps its own.
        model: What training gave the query's side.
    """

    # Fields, so that `configurable_fields`, which makes a new object of an old one's fields, takes them along; never dumped.
    memory: SkipValidation[Memory | Index] = Field(repr=False, exclude=True)
    encoder: SkipValidation[Encoder] = Field(repr=False, exclude=True)
    lexical: SkipValidation[LexicalChannel] = Field(default_factory=LexicalChannel, repr=False, exclude=True)
    linked: SkipValidation[ApproximateChannel] = Field(default_factory=ApproximateChannel, repr=False, exclude=True)
    model: SkipValidation[RetrieverModel | str | Path | None] = Field(default=None, repr=False, exclude=True)

    _changing: threading.RLock = PrivateAttr(default_factory=threading.RLock)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, encoder: Encoder | Embeddings | str | None = None, **settings: Any) -> Self:
        """Open an index that `save_pretrained`, `from_documents(path=...)` or `convcoa index` made; nothing is read in full.

        Args:
            path: The folder.
            encoder: The one that it was built with; a sentence-transformers model is found again when None.
            **settings: In place of those that were saved; `approximate=None` searches an index exactly that has an
                approximate stage.

        Raises:
            InputError: A setting is out of range.
            RetrievalError: There is no index, it is of another version or encoder, damaged or cut short.
        """
        index = Index(path)
        kept: Any = encoder_of(index.head) if encoder is None else encoder
        retriever = cls(memory=index, encoder=kept, **index.head.settings | settings)
        if encoder is not None:
            # The index's own encoder is checked when it is first used, so that no model is loaded before.
            index.snapshot().check_encoder(retriever.encoder)
        return retriever

    def save_pretrained(self, path: str | Path, *, dtype: PatternType | None = None) -> None:
        """Save the memory and the settings as an index, in place of one that is there, all at once or not at all.

        Args:
            path: A folder that is empty, does not exist or holds an index. Where it is the index that is searched, only the
                settings are saved: its documents are already.
            dtype: "float32" or "int8"; as the patterns are when None.

        Raises:
            InputError: An id or metadata cannot be stored.
            RetrievalError: The folder cannot be used or written to; an index that was there is as it was.
        """
        settings = self._settings() | {"model": stated_model(self.model, path)}
        numbers: npt.NDArray[np.int64] | None = None
        view: View
        if isinstance(self.memory, Index):
            view = self.memory.snapshot()
            if self.memory.path.resolve() == Path(path).resolve():
                if dtype not in (None, view.head.dtype):
                    raise InputError(f"The index {path} cannot become {dtype} in its place; save to another folder.")
                self.memory.put_settings(settings)
                save_beside(self.model, path)
                return
            numbers = None if view.alive is None else np.flatnonzero(view.alive)
        else:
            view = self.memory
        save_memory(view, path, self.encoder, dtype=dtype, settings=settings, numbers=numbers)
        save_beside(self.model, path)
        saved = Index(path)
        saved.save_lexical()
        stage = approximate_settings(settings.get("approximate"))
        if stage is not None:
            channel = self.memory.beside.approximate if isinstance(self.memory, Index) else self.linked
            channel.follow(view, stage, passage_weight=settings["passage_weight"], progress=True, everything=True)
            keys = np.full(len(view.patterns), -1, dtype=np.int64)
            keys[slice(None) if numbers is None else numbers] = saved.snapshot().keys
            saved.beside.adopt(channel, keys, saved.head.index)

    def add_documents(
        self, documents: Iterable[Document], *, cache: PatternCache | None = None, progress: Progress = False
    ) -> list[str]:
        """Add documents to the memory; in an index on disk they are committed when this returns.

        A document that is there already, with the same id and content, is passed over. Into an index they are read and
        encoded batch by batch, and a run that was killed can be run again.

        Returns:
            The ids of the documents, in order; those without text are left out.

        Raises:
            InputError: An id or metadata cannot be stored.
            RetrievalError: An id is there with another content, the documents cannot be encoded, or the index cannot be
                written to.
        """
        return self._put(documents, False, cache, progress)

    def update(
        self, documents: Iterable[Document], *, cache: PatternCache | None = None, progress: Progress = False
    ) -> list[str]:
        """`add_documents`, where a document takes the place of the one that has its id."""
        return self._put(documents, True, cache, progress)

    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents by their ids.

        Raises:
            InputError: There is no such document; nothing is deleted.
        """
        with self._changing:
            if isinstance(self.memory, Index):
                self.memory.delete(ids)
            else:
                self.memory = without(self.memory, ids)

    def compact(self) -> None:
        """Free the space of deleted documents in an index on disk; in memory there is none to free."""
        if isinstance(self.memory, Index):
            self.memory.compact()

    def check_encoder(self) -> None:
        """Load the encoder and compare it with the one that an index was built with, as the first search does otherwise.

        Raises:
            RetrievalError: It cannot be loaded, or is another.
        """
        self._view()

    def _put(self, documents: Iterable[Document], replace: bool, cache: PatternCache | None, progress: Progress) -> list[str]:
        documents = checked_documents(documents)
        with self._changing:
            if isinstance(self.memory, Index):
                put = self.memory.update if replace else self.memory.add_documents
                return put(documents, self.encoder, cache=cache, progress=progress)
            self.memory, ids = with_documents(
                self.memory, documents, self.encoder, replace=replace, cache=cache, progress=progress
            )
            return ids

    def _view(self) -> View:
        """What a search is to see; its encoder is checked."""
        if isinstance(self.memory, Memory):
            return self.memory
        view = self.memory.snapshot()
        view.check_encoder(self.encoder)
        return view

    def _lexical(self) -> LexicalChannel:
        return self.memory.beside.lexical if isinstance(self.memory, Index) else self.lexical

    def _settings(self) -> dict[str, Any]:
        """The settings as JSON values."""
        settings = {}
        for name in type(self).model_fields:
            if name in BaseRetriever.model_fields or name in MemoryRetriever.model_fields:
                continue
            try:
                settings[name] = json.loads(json.dumps(getattr(self, name), default=_plain))
            except TypeError:
                _LOGGER.warning("The setting %s is a function or another object that is not saved.", name)
        return settings


def fetch(view: View, numbers: Sequence[int]) -> list[Passage]:
    """The passages of these memory sets, with their windows."""
    if isinstance(view, Memory):
        return [Passage(view.passages[number], view.set_spans(number)) for number in numbers]
    return view.fetch(numbers)


def allowed(view: View, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
    """(n,), True for the memory sets that may be returned; None where all may."""
    return allowed_passages(view.passages, condition) if isinstance(view, Memory) else view.allowed(condition)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError
