"""What a large index costs to open and to search: `python -m tests.retrieval.index.size FOLDER [dtype [patterns]]`, as JSON.

The index is made first, of random patterns, in a process of its own, with its words beside it as `convcoa index` leaves them.
The peak is told for one dense query, for 32 at a time, and for a retriever's queries with the lexical channel. Those are of
stop words alone, so that all scores are equal and every set is scored in full: the most that a search can take.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.index.index import Index, save_index
from langgraph_convcoa.retrieval.memory_corpus import Memory, MemoryCorpus
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, encode_patterns
from langgraph_convcoa.retrieval.scoring.topk import search
from tests.bounds import kilobytes
from tests.retrieval.conftest import BagOfWords

DIMENSION = 384
SET = 8


def make(folder: str, dtype: str, count: int) -> None:
    """An index of sets of eight random patterns."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((count, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    values, scales = encode_patterns(vectors, dtype)
    passages = [Document(f"Passage {i} says this and that. " * 10, id=f"p{i}", metadata={"n": i}) for i in range(count // SET)]
    spans = np.tile(np.array([[0, 20]]), (count - count // SET, 1))
    patterns = Patterns(values=values, scales=scales, offsets=np.arange(0, count + 1, SET), dtype=dtype)
    save_index(MemoryCorpus(Memory(passages, patterns, spans)), folder, BagOfWords(dimension=DIMENSION), {})


def measure(folder: str) -> dict[str, float]:
    """Seconds to open and to search, and megabytes at the peak of it over what was held before."""
    encoder = BagOfWords(dimension=DIMENSION)
    HopfieldRetriever.from_texts(["Something small. And more."] * 3, encoder=encoder).invoke("small")
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    begin = perf_counter()
    index = Index(folder)
    opened = perf_counter() - begin

    def peak() -> float:
        return round((kilobytes("VmHWM") - before) * 1024 / 1e6, 1)

    queries = np.random.default_rng(1).standard_normal((32, DIMENSION), dtype=np.float32)
    begin = perf_counter()
    search(index.snapshot().patterns, queries[:1], k=100)
    first, dense = perf_counter() - begin, peak()
    search(index.snapshot().patterns, queries, k=100)
    batch = peak()
    retriever = HopfieldRetriever(corpus=index, encoder=encoder, k=100)
    begin = perf_counter()
    found = retriever.invoke("this and that")
    hybrid = perf_counter() - begin
    begin = perf_counter()
    retriever.invoke("this and no more")
    assert len(found) == 100
    size = (index.path / index.head.file).stat().st_size
    values = index.snapshot().patterns.values.nbytes
    return {
        "patterns": index.head.rows,
        "open_seconds": round(opened, 4),
        "first_search_seconds": round(first, 3),
        "first_hybrid_search_seconds": round(hybrid, 3),
        "search_seconds": round(perf_counter() - begin, 3),
        "file_megabytes": round(size / 1e6, 1),
        "file_over_raw": round(size / values, 4),
        "peak_over_before_dense_megabytes": dense,
        "peak_over_before_batch_megabytes": batch,
        "peak_over_before_megabytes": peak(),
    }


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        where, dtype, count = [*sys.argv[1:], "float32", "400000"][:3] if len(sys.argv) < 3 else [*sys.argv[1:], "400000"][:3]
        subprocess.run(
            [sys.executable, "-m", "tests.retrieval.index.size", "make", where, dtype, count], check=True, timeout=200
        )
        print(json.dumps(measure(where)))
