"""Benchmark of the encoding of passages for an index: this library's ways against sentence-transformers in float32."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.datasets.demo import demo_folder
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.documents.split import split_documents, windows
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, Vectors, cores
from langgraph_convcoa.retrieval.encoders.sentence_transformer import DTYPES, SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import build_memory
from langgraph_convcoa.retrieval.progress import Progress, track

BASELINE = "sentence-transformers float32"

_WORDS = 200
_BATCH = 32


@dataclass(frozen=True)
class EncoderRow:
    """One way of encoding: pieces (passages and windows) a second, and how much faster than the baseline it is.

    `processor` is the same ratio in processor time, which other programs disturb less. The cosines compare the patterns of
    windows and of whole passages with the baseline's.
    """

    method: str
    pieces_per_second: float
    to_baseline: float
    processor: float
    windows_cosine: float
    wholes_cosine: float


@dataclass(frozen=True)
class EncoderReport(Report):
    """Rows of one run, in which the ways take turns."""

    model: str
    rows: tuple[EncoderRow, ...]
    passages: int
    pieces: int
    words: float
    threads: int
    runs: int

    def tables(self) -> tuple[Table, ...]:
        size = f"{self.passages} passages of {self.words:.0f} words, {self.pieces} pieces with their windows"
        note = f"{size}, {self.threads} threads, {self.runs} alternating runs"
        rows = []
        for row in self.rows:
            times = [shown(row.pieces_per_second, 1), shown(row.to_baseline, 2), shown(row.processor, 2)]
            rows.append([row.method, *times, f"{row.windows_cosine:.4f}", f"{row.wholes_cosine:.4f}"])
        heads = ("encoded", "pieces/s", "faster", "in processor time", "cosine, windows", "cosine, passages")
        return (Table(f"indexing with {self.model}", heads, rows, note, left=1),)


def bench_encoder(
    model: str = DEFAULT_ENCODER,
    *,
    dataset: Dataset | None = None,
    passages: int = 60,
    runs: int = 3,
    progress: Progress = False,
) -> EncoderReport:
    """Time the encoding of passages of about 200 words and of their windows.

    The passages are those of the data, or parts of the demonstration's text. Each way is timed from the
    passages to the patterns, tokens included, on a loaded model.

    Raises:
        InputError: A number is below 1, or the data has no passage of 150 to 250 words.
        RetrievalError: The model cannot be loaded.
    """
    if min(passages, runs) < 1:
        raise InputError("Passages and runs must be at least 1.")
    plain = SentenceTransformerEncoder(model, device="cpu", dtype="float32", batch_size=_BATCH)
    documents = split_documents(_documents(dataset, passages), plain)
    spans = [windows(document.page_content) for document in documents]
    texts = [
        text
        for document, parts in zip(documents, spans, strict=True)
        for text in (document.page_content, *(document.page_content[start:end] for start, end in parts))
    ]
    wholes = np.cumsum([0, *(1 + len(parts) for parts in spans)])[:-1]
    torch_model = plain.model
    ways: dict[str, Callable[[], Vectors]] = {
        BASELINE: lambda: torch_model.encode(texts, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False)
    }
    for dtype in DTYPES:
        encoder = SentenceTransformerEncoder(model, device="cpu", dtype=dtype)
        ways[dtype] = lambda chosen=encoder: _patterns(documents, chosen)  # type: ignore[misc]
    found: dict[str, Vectors] = {}
    wall: dict[str, list[float]] = {name: [] for name in ways}
    used: dict[str, list[float]] = {name: [] for name in ways}
    with track(progress, len(ways) * (runs + 1), "Measuring") as advance:
        # The first run of each way is a warm-up.
        for run in range(runs + 1):
            for name, way in ways.items():
                started, before = time.perf_counter(), time.process_time()
                found[name] = way()
                if run:
                    wall[name].append(time.perf_counter() - started)
                    used[name].append(time.process_time() - before)
                advance(1)
    rows = []
    for name, vectors in found.items():
        cosines = (vectors * found[BASELINE]).sum(axis=1)
        seconds, processor = (float(np.median(times[name])) for times in (wall, used))
        first, first_used = (float(np.median(times[BASELINE])) for times in (wall, used))
        alike = float(np.delete(cosines, wholes).mean()), float(cosines[wholes].mean())
        rows.append(EncoderRow(name, len(texts) / seconds, first / seconds, first_used / processor, *alike))
    words = float(np.mean([len(document.page_content.split()) for document in documents]))
    return EncoderReport(model, tuple(rows), len(documents), len(texts), words, cores(), runs)


def _patterns(documents: Sequence[Document], encoder: SentenceTransformerEncoder) -> Vectors:
    values: Vectors = build_memory(documents, encoder).patterns.values
    return values


def _documents(dataset: Dataset | None, count: int) -> list[Document]:
    if dataset is not None:
        fit = [d for d in dataset.corpus if 0.75 * _WORDS <= len(d.page_content.split()) <= 1.25 * _WORDS][:count]
        if not fit:
            raise InputError(f"The data has no passages of about {_WORDS} words; leave out --data.")
        return [Document(d.page_content, id=d.id) for d in fit]
    words = " ".join(document.page_content for document in load_documents(demo_folder())).split()
    # The text is used again and again, each time from a later word, so that no two passages are equal.
    starts = [(number * _WORDS + number * _WORDS // len(words)) % max(len(words) - _WORDS, 1) for number in range(count)]
    return [Document(" ".join(words[start : start + _WORDS]), id=str(number)) for number, start in enumerate(starts)]
