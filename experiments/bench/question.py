"""Benchmark of one question: retrieval for a follow-up in a running process, and a whole command."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.memory_corpus import Memory, MemoryCorpus
from langgraph_convcoa.retrieval.patterns import Patterns
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_WINDOWS, _WORDS = 5, 60
SEARCH = ("search", "demo", "capacity of a Hopfield network")
"""Arguments of the `convcoa` command that is timed."""

_LONGEST = 600


@dataclass(frozen=True)
class QuestionRow:
    """One measure over all runs: median and minimum of the elapsed seconds and of the processor time (all cores)."""

    what: str
    median: float
    least: float
    processor_median: float
    processor_least: float


@dataclass(frozen=True)
class QuestionReport(Report):
    """Times of a question; `load` is the load average of the last minute."""

    rows: tuple[QuestionRow, ...]
    passages: int
    turns: int
    runs: int
    cores: int
    load: float

    def tables(self) -> tuple[Table, ...]:
        rows = [
            [r.what, *(shown(1e3 * value, 1) for value in (r.median, r.least, r.processor_median, r.processor_least))]
            for r in self.rows
        ]
        columns = ("", "ms", "least", "processor, ms", "least")
        note = (
            f"{self.passages:,} passages, {self.turns} turns known, {self.runs} runs, {self.cores} cores, load {self.load:.1f}"
        )
        return (Table("A question", columns, rows, note),)


def bench_question(
    passages: int = 6_000, *, turns: int = 8, runs: int = 20, commands: int = 5, progress: Progress = False
) -> QuestionReport:
    """Time a follow-up's retrieval over synthetic passages, its parts, and `convcoa search demo` with a warm cache.

    A passage has six random patterns and random words. The encoder and the model are the defaults. The turns of the history
    are already encoded, the question is not. Raises InputError if a number is too small.
    """
    if min(passages, turns, runs, commands + 1) < 1:
        raise InputError("Passages, turns and runs must be at least 1, commands at least 0.")
    retriever = HopfieldRetriever(corpus=MemoryCorpus(_memory(passages)))
    history = [
        (f"What does paper {i} say about the network of paper {i + 1}?", f"Its energy falls until pattern {2 * i} is found.")
        for i in range(turns)
    ]
    retriever.invoke("What is in it?", history=history)
    number = iter(range(10**9))

    def new() -> str:
        return f"And what does it say about number {next(number)} then?"

    def encode() -> object:
        return retriever.encoder.encode_queries([new()])

    asked = new()
    retriever.invoke(asked, history=history)
    measured: dict[str, tuple[int, Callable[[], object]]] = {
        "a follow-up's retrieval": (runs, lambda: retriever.invoke(new(), history=history)),
        "of it the vector of the question by itself": (runs, encode),
        "of it the search": (runs, lambda: retriever.invoke(asked, history=history)),
        "convcoa search demo, in all": (commands, _command),
    }
    rows = []
    with track(progress, sum(count for count, _ in measured.values()), "Timing") as advance:
        for what, (count, work) in measured.items():
            if work is _command and count:
                # One command fills the cache before the measured ones.
                _command()
            times = []
            for _ in range(count):
                times.append(_timed(work))
                advance(1)
            if times:
                (wall, processor), (fastest, least) = np.median(times, axis=0).tolist(), np.min(times, axis=0).tolist()
                rows.append(QuestionRow(what, wall, fastest, processor, least))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return QuestionReport(tuple(rows), passages, turns, runs, os.cpu_count() or 1, load)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    start, before = time.perf_counter(), _processor()
    work()
    return time.perf_counter() - start, _processor() - before


def _processor() -> float:
    """Processor time of this process and of its ended children."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _command() -> None:
    command = [sys.executable, "-m", "langgraph_convcoa", *SEARCH]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LONGEST)  # noqa: S603


def _memory(passages: int, dimension: int = 384) -> Memory:
    """Random passages, each a whole-passage pattern and five windows."""
    rng = np.random.default_rng(0)
    values: Vectors = rng.standard_normal((passages * (_WINDOWS + 1), dimension), dtype=np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    words = rng.integers(0, 5_000, (passages, _WORDS))
    documents = [Document(" ".join(f"w{word}" for word in row), id=str(i)) for i, row in enumerate(words.tolist())]
    spans = [[*itertools.pairwise(np.linspace(0, 2 * _WORDS, _WINDOWS + 1).astype(int).tolist())]] * passages
    offsets = np.arange(0, len(values) + 1, _WINDOWS + 1, dtype=np.int64)
    return Memory(documents, Patterns(values, offsets), spans, np.arange(passages))
