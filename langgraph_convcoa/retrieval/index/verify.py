"""A check of everything that an index holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from langgraph_convcoa.retrieval.index.documents import Catalogue
from langgraph_convcoa.retrieval.index.snapshot import Snapshot


def verify(database: Catalogue, load: Callable[[], Snapshot]) -> None:
    """Read all of an index's database, patterns and passages, and compare them with their checksums.

    Args:
        database: Of the index.
        load: Reads its present state, of which nothing has been checked yet.

    Raises:
        RetrievalError: Something is damaged; the message says what.
    """
    finding = database.integrity()
    if finding != "ok":
        raise database.damaged(finding)
    snapshot = load()
    snapshot.check_blocks(snapshot.blocks)
    for numbers, passages in snapshot.batches():
        sizes = snapshot.offsets[numbers + 1] - snapshot.offsets[numbers]
        for passage, size in zip(passages, sizes, strict=True):
            if len(passage.spans) + 1 != size:
                raise database.damaged(f"the passage {passage.document.id!r} has lost a window")
    with database.reading() as connection:
        ranges = database.ranges(connection)
        if database.head(connection).commits != snapshot.head.commits:
            return
    keys = snapshot.keys if snapshot.alive is None else snapshot.keys[snapshot.alive]
    if sum(last - first + 1 for _, first, last in ranges) != len(keys) or any(
        np.searchsorted(keys, last) - np.searchsorted(keys, first) != last - first for _, first, last in ranges
    ):
        raise database.damaged("its documents and passages do not agree")
