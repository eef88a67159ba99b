"""Patterns of a passage pooled from the token vectors of fewer runs of the encoder than one a pattern.

"late" is late chunking (Günther et al. 2024): one run over the passage, its windows pooled from it. "pooled" is the other way
round: a run over each window, and the passage pooled from those, each token once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.bert import Array, Bert
from langgraph_convcoa.retrieval.encoders.bert_onnx import OnnxBert

WindowKind: TypeAlias = Literal["apart", "pooled", "late"]
"""What is encoded of a passage: the whole and each window; each window; the whole."""

WINDOW_KINDS: tuple[WindowKind, ...] = get_args(WindowKind)


class PassageText(NamedTuple):
    """A passage with its title and the spans of its windows, in characters of the text."""

    title: str
    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def whole(self) -> str:
        """What the whole-passage pattern is of."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    def row_keys(self) -> list[str]:
        """What its patterns, the whole and the windows, are kept under in a cache."""
        return [f"{place}\0{self.title}\0{self.text}" for place in ("", *(f"{start}:{end}" for start, end in self.spans))]


def pooled_vectors(
    bert: Bert, session: OnnxBert, kind: WindowKind, passages: Sequence[PassageText], advance: Callable[[int], None]
) -> Vectors:
    """Patterns (N, d), not normalised, of passages one after another: the whole, then its windows."""
    starts = np.cumsum([0, *(1 + len(passage.spans) for passage in passages)])
    rows = np.zeros((int(starts[-1]), bert.dimension), dtype=np.float32)
    (_late if kind == "late" else _pooled)(bert, session, passages, starts, rows, advance)
    return rows


def _late(
    bert: Bert,
    session: OnnxBert,
    passages: Sequence[PassageText],
    starts: npt.NDArray[np.int64],
    rows: Vectors,
    advance: Callable[[int], None],
) -> None:
    wholes = [passage.whole for passage in passages]
    ids, begins = _tokens(bert, wholes)

    def take(places: list[int], states: Array) -> None:
        for place, state in zip(places, states, strict=True):
            passage, first = passages[place], int(starts[place])
            before = len(passage.whole) - len(passage.text)
            rows[first] = state.mean(axis=0)
            for number, (start, end) in enumerate(passage.spans, first + 1):
                within = (begins[place] >= start + before) & (begins[place] < end + before)
                # A window without a token of its own, such as one behind what the encoder reads, is as the whole.
                rows[number] = state[within].mean(axis=0) if within.any() else rows[first]

    session.tokens(ids, take, advance)


def _pooled(
    bert: Bert,
    session: OnnxBert,
    passages: Sequence[PassageText],
    starts: npt.NDArray[np.int64],
    rows: Vectors,
    advance: Callable[[int], None],
) -> None:
    texts: list[str] = []
    # Of each text the row of its window, none of a title; the row of its passage; and from where its characters are new.
    own: list[int | None] = []
    whole: list[int] = []
    fresh: list[int] = []
    for passage, first in zip(passages, starts.tolist(), strict=False):
        parts: list[tuple[str, int | None, int]] = [(passage.title, None, 0)] if passage.title else []
        read = 0
        for number, (start, end) in enumerate(passage.spans, first + 1):
            parts.append((passage.text[start:end], number, max(read - start, 0)))
            read = max(read, end)
        texts += [text for text, _, _ in parts]
        own += [row for _, row, _ in parts]
        fresh += [new for _, _, new in parts]
        whole += [first] * len(parts)
    ids, begins = _tokens(bert, texts)
    sums: list[Array | None] = [None] * len(texts)
    counts = np.zeros(len(texts), dtype=np.int64)

    def take(places: list[int], states: Array) -> None:
        for place, state in zip(places, states, strict=True):
            new = begins[place] >= fresh[place]
            new[[0, -1]] = True
            sums[place], counts[place] = state[new].sum(axis=0), new.sum()
            if (row := own[place]) is not None:
                rows[row] = state.mean(axis=0)

    session.tokens(ids, take, lambda _texts: None)
    totals = np.zeros(len(rows), dtype=np.int64)
    for place, found in enumerate(sums):
        if found is not None:
            rows[whole[place]] += found
            totals[whole[place]] += counts[place]
    firsts = starts[:-1]
    rows[firsts] /= np.maximum(totals[firsts], 1)[:, None]
    advance(len(passages))


def _tokens(bert: Bert, texts: Sequence[str]) -> tuple[list[list[int]], list[npt.NDArray[np.int64]]]:
    """Token ids, cut off, and where each token begins in its text: -1 for the first and the last one, which are no words."""
    ids, begins = [], []
    for text, encoding in zip(texts, bert.tokenizer.encode_batch([text.strip() for text in texts]), strict=True):
        ids.append(bert.cut(encoding.ids))
        found = np.array([start for start, _ in encoding.offsets[: len(ids[-1])]], dtype=np.int64)
        found += len(text) - len(text.lstrip())
        found[[0, -1]] = -1
        begins.append(found)
    return ids, begins
