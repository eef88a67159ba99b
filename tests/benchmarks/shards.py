"""Milliseconds a question over one index and over shards of it, in processes: `python -m tests.benchmarks.shards`.

Patterns are random, texts made up; the encoder takes no time. Runs alternate, since a machine may have other users.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.index.writer import write_index
from langgraph_convcoa.retrieval.memory_corpus import Memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

_DIMENSION, _WINDOWS, _VOCABULARY = 384, 3, 20_000


class RandomEncoder(Encoder):
    """A vector for each text, made of its checksum."""

    name, dimension, max_tokens = "random", _DIMENSION, 256

    def count_tokens(self, text: str) -> int:
        return len(text.split()) + 2

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.stack([unit(np.random.default_rng(zlib.crc32(text.encode())), 1)[0] for text in texts])

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        return self.encode_queries(texts)


def unit(rng: np.random.Generator, count: int) -> Vectors:
    rows = rng.standard_normal((count, _DIMENSION), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def words(rng: np.random.Generator, count: int) -> str:
    return " ".join(f"word{number}" for number in (_VOCABULARY * rng.random(count) ** 3).astype(int))


def make(folder: Path, passages: range, dtype: str) -> None:
    """An index of the passages of these numbers."""
    documents, rows = [], []
    for number in passages:
        rng = np.random.default_rng(number)
        documents.append(Document(id=f"p{number}", page_content=words(rng, 60)))
        rows.append(unit(rng, 1 + _WINDOWS))
    spans = np.array([(0, 10)] * (_WINDOWS * len(passages)), dtype=np.int64)
    offsets = (1 + _WINDOWS) * np.arange(len(passages) + 1, dtype=np.int64)
    write_index(folder, Memory(documents, Patterns(np.concatenate(rows), offsets), spans), RandomEncoder(), dtype, {})
    Index(folder).save_lexical()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=50_000)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        cuts = np.linspace(0, options.passages, options.shards + 1).astype(int).tolist()
        folders = [Path(place) / str(number) for number in range(options.shards)]
        for folder, start, stop in zip(folders, cuts, cuts[1:], strict=False):
            make(folder, range(start, stop), options.dtype)
        make(Path(place) / "all", range(options.passages), options.dtype)
        encoder, times = RandomEncoder(), {"one": [], "shards": []}
        one = HopfieldRetriever.from_pretrained(Path(place) / "all", encoder=encoder, k=10, graph=False)
        with HopfieldRetriever.from_shards(folders, encoder=encoder, k=10, timeout=120) as sharded:
            for number in range(options.questions + 2):
                question, found = words(np.random.default_rng(10**9 + number), 6), {}
                for name, retriever in (("one", one), ("shards", sharded)):
                    begun = time.perf_counter()
                    found[name] = [(one.id, one.metadata["score"]) for one in retriever.invoke(question)]
                    # The first ones read the files.
                    if number >= 2:
                        times[name].append(1000 * (time.perf_counter() - begun))
                assert found["one"] == found["shards"]
    median = {name: round(statistics.median(values), 2) for name, values in times.items()}
    patterns = options.passages * (1 + _WINDOWS)
    ratio = round(median["shards"] / median["one"], 3)
    told = {"patterns": patterns, "shards": options.shards, "ms": median, "ratio": ratio, "load": os.getloadavg()[0]}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
