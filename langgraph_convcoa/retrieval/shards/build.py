"""Writing documents into shards: which is whose, so that a document is always in the same one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.index.index import Committed, Index, open_or_create
from langgraph_convcoa.retrieval.scoring.patterns import PatternType
from langgraph_convcoa.retrieval.shards.names import shard_counts, shard_path

_TOGETHER = 256


class ShardWriter:
    """The shards of a folder, made where they are missing, to be written to: `shard-1-of-N` to `shard-N-of-N`.

    Args:
        folder: Of the shards.
        count: How many they are.
        encoder: What the documents are encoded with.
        dtype: How patterns are stored; as they are there already, else "float32", when None.

    Raises:
        InputError: The folder has another number of shards, or `count` is below 1.
        RetrievalError: A shard cannot be opened or made, or is of another encoder or type.

    Example:
        >>> import tempfile
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
        >>> encoder = EmbeddingsEncoder(DeterministicFakeEmbedding(size=8), name="fake")
        >>> shards = ShardWriter(tempfile.mkdtemp(), 2, encoder)
        >>> [done] = shards.ingest([Document("Ada wrote it.", id="a")])
        >>> done.added, [len(index) for index in shards.indexes]
        (1, [0, 1])
    """

    def __init__(self, folder: str | Path, count: int, encoder: Encoder, *, dtype: PatternType | None = None) -> None:
        if count < 1:
            raise InputError(f"There must be at least 1 shard, not {count}.")
        if (held := shard_counts(folder)) not in (set(), {count}):
            raise InputError(f"{folder} holds {' or '.join(map(str, sorted(held)))} shards, not {count}; name another folder.")
        self.encoder = encoder
        paths = [shard_path(folder, number, count) for number in range(1, count + 1)]
        self.indexes: list[Index] = [open_or_create(path, encoder, dtype, {}) for path in paths]

    def ingest(self, documents: Iterable[Document]) -> Iterator[Committed]:
        """Add documents, each in place of the one with its id, some at a time: what is given back has been committed."""
        stream = iter(documents)
        while batch := [*islice(stream, _TOGETHER * len(self.indexes))]:
            parts: list[list[Document]] = [[] for _ in self.indexes]
            for document in batch:
                parts[self.owner(document)].append(document)
            for index, part in zip(self.indexes, parts, strict=True):
                if part:
                    yield from index.ingest(part, self.encoder, replace=True)

    def owner(self, document: Document) -> int:
        """The place of a document's shard, by its id or, where it has none, by what it says."""
        name = document.id or f"{document.metadata.get('title') or ''}\0{document.page_content}"
        return int.from_bytes(blake2b(name.encode("utf-8", "replace"), digest_size=8).digest(), "big") % len(self.indexes)

    def save(self) -> None:
        """Leave nothing to do for who opens the shards."""
        for index in self.indexes:
            if 2 * index.snapshot().pattern_count < index.head.rows:
                index.compact()
            index.save_lexical()
