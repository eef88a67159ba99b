"""Changes to a memory that is not on disk: each gives a new memory, and searches that have begun go on over the old one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.index.documents import Passage, check_owners, content_digest, encoded, groups_of, select
from langgraph_convcoa.retrieval.memory import Memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, PatternType


def with_documents(
    memory: Memory,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    replace: bool,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> tuple[Memory, list[str]]:
    """The memory with more documents, and their ids; those that are there with the same content are passed over.

    Args:
        memory: What there is.
        documents: Those without text are left out.
        encoder: The one that the memory was built with.
        replace: Whether a document takes the place of one with its id and another content, which else is an error.
        cache: Where encoded patterns are kept between runs.
        progress: A bar, a callback or nothing while encoding.

    Raises:
        InputError: An id or metadata cannot be stored.
        RetrievalError: An id is used twice, a document would be left without text, or the documents cannot be encoded.
    """
    if len(memory) and encoder.dimension != memory.dimension:
        raise RetrievalError(
            f"The encoder {encoder.name!r} gives vectors of length {encoder.dimension}, and the memory holds vectors "
            f"of length {memory.dimension}; give the encoder that it was built with."
        )
    given = list(documents)
    found = [document for document in given if document.page_content.strip()]
    groups = dict(groups_of(Passage(p, memory.set_spans(i)) for i, p in enumerate(memory.passages)))
    emptied = next((d.id for d in given if replace and d.id in groups and not d.page_content.strip()), None)
    if emptied is not None:
        raise RetrievalError(f"The document {emptied!r} would be left without text; delete it instead.")
    if not found:
        return memory, []

    def digests(ids: Sequence[str]) -> dict[str, bytes]:
        return {identity: content_digest(groups[identity]) for identity in ids if identity in groups}

    ids, fresh, changed, _ = select(found, encoder, replace=replace, digests=digests)
    todo, replaced = fresh + changed, {entry.id for entry in changed}
    if not todo:
        return memory, ids
    owners = {str(passage.document.id): name for name, group in groups.items() for passage in group}
    check_owners(todo, owners, replaced)
    dtype: PatternType = memory.patterns.dtype if len(memory) else "float32"
    entries, sets = encoded(todo, encoder, dtype, cache, progress)
    offsets = np.concatenate([[0], np.cumsum(sets.sizes)]).astype(np.int64)
    passages = [passage for entry in entries for passage in entry.passages]
    added = Memory(
        [passage.document for passage in passages],
        Patterns(values=sets.values, scales=sets.scales, offsets=offsets, dtype=dtype),
        _spans(passages),
    )
    kept = without(memory, replaced) if replaced else memory
    return _joined(kept, added), ids


def without(memory: Memory, ids: Iterable[str]) -> Memory:
    """The memory without these documents.

    Raises:
        InputError: There is no such document.
    """
    names = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
    numbers: dict[str, list[int]] = {}
    count = 0
    for name, group in groups_of(Passage(passage, []) for passage in memory.passages):
        numbers[name] = list(range(count, count + len(group)))
        count += len(group)
    unknown = next((name for name in names if name not in numbers), None)
    if unknown is not None:
        raise InputError(f"There is no document {unknown!r} in the memory; nothing was deleted.")
    keep = np.ones(count, dtype=np.bool_)
    for name in names:
        keep[numbers[name]] = False
    return _chosen(memory, np.flatnonzero(keep))


def _chosen(memory: Memory, sets: npt.NDArray[np.int64]) -> Memory:
    passages = [Passage(memory.passages[i], memory.set_spans(i)) for i in sets.tolist()]
    return Memory([passage.document for passage in passages], memory.patterns.select(sets), _spans(passages))


def _joined(one: Memory, other: Memory) -> Memory:
    if not len(one):
        return other
    scales = None
    if one.patterns.scales is not None and other.patterns.scales is not None:
        scales = np.concatenate([one.patterns.scales, other.patterns.scales])
    return Memory(
        [*one.passages, *other.passages],
        Patterns(
            values=np.concatenate([one.patterns.values, other.patterns.values]),
            scales=scales,
            offsets=np.concatenate([one.patterns.offsets, one.patterns.offsets[-1] + other.patterns.offsets[1:]]),
            dtype=one.patterns.dtype,
        ),
        np.concatenate([one.spans, other.spans]),
    )


def _spans(passages: Iterable[Passage]) -> npt.NDArray[np.int64]:
    return np.array([span for passage in passages for span in passage.spans], dtype=np.int64).reshape(-1, 2)
