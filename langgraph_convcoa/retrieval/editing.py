"""A retriever whose documents can be added, updated and deleted, as in LangChain's indexing API and vector stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from langchain_core.documents import Document
from langchain_core.indexing import DeleteResponse, DocumentIndex, UpsertResponse
from langchain_core.runnables.config import run_in_executor
from pydantic import Field, SkipValidation

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.corpus import Corpus
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.progress import Progress


class EditableRetriever(DocumentIndex):
    """A retriever over a corpus whose documents are added, fetched and deleted by their ids.

    It is a LangChain `DocumentIndex`, so `langchain_core.indexing.index` can keep it in step with a loader. Each method has an
    asynchronous form, with an `a` before its name, that runs it in a thread.
    """

    # Pydantic fields, so that `configurable_fields` copies them; they are never dumped.
    corpus: SkipValidation[Corpus] = Field(repr=False, exclude=True)
    encoder: SkipValidation[Encoder] = Field(repr=False, exclude=True)

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str] | None = None,
        cache: PatternCache | str | Path | None = None,
        progress: Progress = False,
    ) -> list[str]:
        """Add documents to the corpus, and return their ids.

        A document with the same id and content as a stored one is skipped; documents without text are left out. An index on
        disk is written batch by batch, so a killed run can be run again.

        Args:
            documents: A document without an id gets an id made of its title and text.
            ids: An id for each document, in place of its own.
            cache: As for `HopfieldRetriever.from_documents`.
            progress: As for `HopfieldRetriever.from_documents`.

        Raises:
            InputError: An id or metadata cannot be stored, or the corpus is a vector store.
            RetrievalError: A stored document has the same id but other content, or documents cannot be encoded or written.
        """
        return self._ingest(documents if ids is None else _named(documents, ids), False, cache, progress)

    async def aadd_documents(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """`add_documents`, in a thread."""
        return await run_in_executor(None, self.add_documents, documents, **options)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[dict[str, Any]] | None = None,
        *,
        ids: Iterable[str] | None = None,
        cache: PatternCache | str | Path | None = None,
        progress: Progress = False,
    ) -> list[str]:
        """`add_documents` for plain texts, with metadata and ids in the same order."""
        return self.add_documents(text_documents(texts, metadatas, ids), cache=cache, progress=progress)

    async def aadd_texts(
        self, texts: Iterable[str], metadatas: Iterable[dict[str, Any]] | None = None, **options: Any
    ) -> list[str]:
        """`add_texts`, in a thread."""
        return await run_in_executor(None, self.add_texts, texts, metadatas, **options)

    def update(
        self, documents: Iterable[Document], *, cache: PatternCache | str | Path | None = None, progress: Progress = False
    ) -> list[str]:
        """Like `add_documents`, but a document replaces the stored document that has the same id."""
        return self._ingest(documents, True, cache, progress)

    async def aupdate(self, documents: Iterable[Document], **options: Any) -> list[str]:
        """`update`, in a thread."""
        return await run_in_executor(None, self.update, documents, **options)

    def _ingest(
        self, documents: Iterable[Document], replace: bool, cache: PatternCache | str | Path | None, progress: Progress
    ) -> list[str]:
        given, store = checked_documents(documents), as_cache(cache)
        commits = self.corpus.ingest(given, self.encoder, replace=replace, cache=store, progress=progress)
        return [identity for done in commits for identity in done.ids]

    def upsert(self, items: Sequence[Document], /, **kwargs: Any) -> UpsertResponse:
        """`update` for LangChain's indexing API. Returns {"succeeded": the ids, "failed": []}."""
        return {"succeeded": self.update(items, **kwargs), "failed": []}

    def delete(self, ids: Iterable[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """Delete documents by their ids; missing ids are skipped. `succeeded` in the result has the ids that existed.

        InputError without ids, for the id of a part of a longer document, or if the corpus is a vector store.
        """
        if ids is None:
            raise InputError("delete needs the ids of the documents.")
        gone = self.corpus.delete(ids)
        return {"num_deleted": len(gone), "succeeded": gone, "num_failed": 0, "failed": []}

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids, in order; missing ids are skipped. A passage's id gives that part of its document.

        Raises InputError if the ids are not texts, or the corpus is a vector store.
        """
        return self.corpus.documents(ids)

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """`get_by_ids`, in a thread."""
        return await run_in_executor(None, self.get_by_ids, ids)

    def get(self, ids: Sequence[str], /, **kwargs: Any) -> list[Document]:
        """`get_by_ids`, under the name of LangChain's `DocumentIndex`."""
        return self.get_by_ids(ids)

    def close(self) -> None:
        """Close the connections of the corpus, such as those to an engine; a `with` block does this too."""
        self.corpus.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def compact(self) -> None:
        """Free the space of deleted documents in an index on disk or an engine."""
        self.corpus.compact()


def checked_documents(documents: Iterable[Document]) -> Iterable[Document]:
    """Raise InputError for objects that are not documents: at once for a list, otherwise when they are read."""
    if not isinstance(documents, Iterable):
        raise InputError(f"The documents must be a list or another iterable, not {type(documents).__name__}.")

    def checked(document: object) -> Document:
        if isinstance(document, Document):
            return document
        kind = type(document).__name__
        raise InputError(f"A document must be a LangChain Document, not {kind}; give plain texts to from_texts.")

    return list(map(checked, documents)) if isinstance(documents, Sized) else map(checked, documents)


def text_documents(
    texts: Iterable[str], metadatas: Iterable[dict[str, Any]] | None, ids: Iterable[str] | None
) -> list[Document]:
    """Make documents from texts, metadata and ids, given in one order; InputError if their numbers differ."""
    if isinstance(texts, str):
        raise InputError("The texts are one string; give a list of texts.")
    bodies = list(texts)
    data = [{} for _ in bodies] if metadatas is None else list(metadatas)
    names = [None for _ in bodies] if ids is None else list(ids)
    if not len(bodies) == len(data) == len(names):
        raise InputError(f"There are {len(bodies)} texts, {len(data)} metadatas and {len(names)} ids; give one of each.")
    return [Document(id=i, page_content=t, metadata=m) for t, m, i in zip(bodies, data, names, strict=True)]


def as_cache(cache: PatternCache | str | Path | None) -> PatternCache | None:
    """The cache, opened if it is given as a path."""
    return PatternCache(cache) if isinstance(cache, str | Path) else cache


def _named(documents: Iterable[Document], ids: Iterable[str]) -> list[Document]:
    given, names = list(checked_documents(documents)), list(ids)
    if len(given) != len(names):
        raise InputError(f"There are {len(given)} documents and {len(names)} ids; give one of each.")
    return [document.model_copy(update={"id": name}) for document, name in zip(given, names, strict=True)]
