"""Negatives: hard ones, mined with a retriever, and which passages of a batch are none."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.conversation import History
from langgraph_convcoa.retrieval.passages import document_id
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.training.data import TrainingExample

_FORMAT = 1
_BATCH = 256


class Searcher(Protocol):
    """What negatives are mined with: a `HopfieldRetriever`, or anything that searches many questions at once."""

    def search_batch(
        self, queries: Sequence[str], histories: Sequence[History | None] | None = None, k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """The ids and scores of the best k passages for each query, best first."""
        ...


def mine_negatives(
    examples: Sequence[TrainingExample],
    passages: Sequence[Document],
    searcher: Searcher,
    *,
    model: str,
    path: str | Path | None = None,
    count: int = 8,
    depth: int = 50,
    skip: int = 0,
    progress: Progress = False,
) -> list[tuple[str, ...]]:
    """The best-ranked passages that do not answer each question: hard negatives (Karpukhin et al. 2020; Xiong et al. 2021).

    A passage of a gold document is no negative, nor is one with the text of such a passage.

    Args:
        examples: n questions.
        passages: Those that are searched, by the ids that the searcher gives (`retriever.memory.passages`).
        searcher: The current model.
        model: What the searcher is, so that kept negatives of another one are not taken for its own.
        path: A JSON Lines file that keeps what is mined, batch by batch; a run that was stopped goes on where it was. Nothing
            is kept when None.
        count: How many negatives a question, at most.
        depth: How many passages are looked through, at least; more where a question has many gold passages.
        skip: How many of the first that are not gold are passed over: they may answer the question after all.
        progress: A bar, a callback or nothing, in questions.

    Returns:
        The ids of each question's negatives, best first.

    Raises:
        InputError: A number cannot be used, or the file holds negatives of other data, settings or another model.
    """
    if count < 1 or depth < 1 or skip < 0:
        raise InputError("count and depth must be at least 1 and skip at least 0.")
    owners = {str(passage.id): document_id(passage) for passage in passages}
    texts = {str(passage.id): passage.page_content for passage in passages}
    parts: dict[str, list[str]] = {}
    for identity, owner in owners.items():
        parts.setdefault(owner, []).append(texts[identity])
    head = {"format": _FORMAT, "data": _fingerprint(examples, owners, model, count, depth, skip)}
    found = _kept(Path(path), head, len(examples)) if path is not None else []
    with track(progress, len(examples), "Mining negatives") as advance:
        advance(len(found))
        while len(found) < len(examples):
            batch = examples[len(found) : len(found) + _BATCH]
            gold = max(sum(len(parts.get(owner, ())) for owner in example.gold) for example in batch)
            k = min(depth + skip + gold, len(passages))
            hits = searcher.search_batch([example.question for example in batch], [example.history for example in batch], k)
            mined = []
            for example, ranking in zip(batch, hits, strict=True):
                same = {text for owner in example.gold for text in parts.get(owner, ())}
                others = (
                    identity
                    for identity, _ in ranking
                    if owners.get(identity, identity) not in example.gold and texts.get(identity) not in same
                )
                mined.append(tuple(islice(others, skip, skip + count)))
            if path is not None:
                _append(Path(path), mined)
            found += mined
            advance(len(mined))
    return found


def gold_mask(
    gold: Sequence[Collection[str]], sets: Sequence[str], texts: Mapping[str, str] | None = None
) -> npt.NDArray[np.bool_]:
    """Which passages of a batch are gold for which query, so that none of them is taken for a negative.

    Args:
        gold: For each of b queries the ids of its gold documents.
        sets: The documents of n memory sets (the parts of a split document bear one id).
        texts: The text of a document by its id; one with the text of a gold passage counts as gold, too.

    Returns:
        (b, n), True where the document of the set is gold for the query.

    Example:
        >>> gold_mask([{"a"}, {"b", "c"}], ["a", "b", "c"]).tolist()
        [[True, False, False], [False, True, True]]
    """
    mask = np.zeros((len(gold), len(sets)), dtype=np.bool_)
    for row, wanted in enumerate(gold):
        same = {texts[identity] for identity in wanted if identity in texts} if texts else set()
        for column, identity in enumerate(sets):
            mask[row, column] = identity in wanted or (texts is not None and texts.get(identity) in same)
    return mask


def _fingerprint(examples: Sequence[TrainingExample], owners: Mapping[str, str], *settings: object) -> str:
    digest = hashlib.sha256(repr(settings).encode())
    for example in examples:
        digest.update(repr((example.id, example.question, example.history, example.gold)).encode())
    for identity in owners:
        digest.update(f"{identity}\n".encode())
    return digest.hexdigest()


def _kept(path: Path, head: dict[str, Any], limit: int) -> list[tuple[str, ...]]:
    """The negatives of an earlier run; a line that it was stopped in is cut off. A new file gets its head."""
    try:
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return []
        rows = list(_rows(whole, path))
        if not rows or rows[0] != head:
            raise InputError(
                f"{path} holds negatives of other data, settings or another model; name another file, or delete it."
            )
        found = [tuple(row) for row in rows[1:] if isinstance(row, list)]
        if len(found) != len(rows) - 1 or len(found) > limit:
            raise InputError(f"{path} is damaged; delete it, and the negatives are mined again.")
        if len(whole) < len(data):
            with path.open("r+b") as stream:
                stream.truncate(len(whole))
    except OSError as error:
        raise InputError(f"{path} cannot be used to keep negatives: {error}.") from error
    return found


def _rows(data: bytes, path: Path) -> Iterator[Any]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield json.loads(line)
        except ValueError:
            raise InputError(f"{path}, line {number}: damaged; delete the file, and the negatives are mined again.") from None


def _append(path: Path, mined: Sequence[tuple[str, ...]]) -> None:
    try:
        with path.open("ab") as stream:
            stream.write("".join(json.dumps(ids) + "\n" for ids in mined).encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise InputError(f"{path} cannot be written to: {error}.") from error
