"""What a corpus of so many passages takes, from measured slopes: `python -m tests.benchmarks.capacity`.

texts DATA/squad2 DATA/hotpot   patterns and characters a passage, of real sets
scan                            seconds of the exact int8 search over made-up vectors, at several sizes, and its slope
table                           bytes, seconds and money for 1 million to 1 billion passages, with what is assumed
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from langgraph_convcoa.retrieval.documents.split import windows
from langgraph_convcoa.retrieval.encoders.base import Vectors, cores
from langgraph_convcoa.retrieval.patterns import Patterns, encode_patterns
from langgraph_convcoa.retrieval.search import top_k

DIMENSION = 384
SIZES = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
PART = 250_000
# y_0 and 4 to 12 windows: a set has about 8 patterns.
_SMALLEST, _LARGEST = 5, 13
_TOPICS = 500
_WINDOW_NOISE = 0.8
_ROWS = 65_536


def texts(folders: list[Path]) -> list[dict[str, Any]]:
    """Patterns and characters a passage; a passage is one line of the corpus, and is its whole and its windows."""
    from langgraph_convcoa.datasets.read import stream_passages

    told = []
    for folder in folders:
        passages = [*stream_passages(folder / "corpus.jsonl.gz")]
        counts = np.array([1 + len(windows(one.page_content)) for one in passages])
        characters = np.array([len(one.page_content) for one in passages])
        told.append(
            {
                "set": folder.name,
                "passages": len(counts),
                "patterns_a_passage": round(float(counts.mean()), 2),
                "p95": int(np.percentile(counts, 95)),
                "characters_a_passage": round(float(characters.mean())),
            }
        )
    return told


def synthetic_memory(size: int, dimension: int, queries: int, seed: int) -> tuple[Patterns, Vectors]:
    """About `size` unit patterns in sets around 500 topics, and unit queries (q, d), each near a passage."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(_SMALLEST, _LARGEST + 1, size // _SMALLEST + 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # The last set ends at the size; a set that would have too few patterns is left out.
    offsets = offsets[: max(2, int(np.searchsorted(offsets, size - 1)))]
    offsets[-1] = max(size, 2)
    n = len(offsets) - 1
    topics = _unit(rng, (_TOPICS, dimension))
    whole = _normalise(topics[rng.integers(0, _TOPICS, n)] + _unit(rng, (n, dimension)))
    owners = np.repeat(np.arange(n), np.diff(offsets))
    values = np.empty((len(owners), dimension), dtype=np.float32)
    for start in range(0, len(values), _ROWS):
        part = owners[start : start + _ROWS]
        values[start : start + _ROWS] = _normalise(whole[part] + _WINDOW_NOISE * _unit(rng, (len(part), dimension)))
    values[offsets[:-1]] = whole
    near = whole[rng.integers(0, n, queries)]
    return Patterns(values, offsets), _normalise(near + _WINDOW_NOISE * _unit(rng, (queries, dimension)))


def _unit(rng: np.random.Generator, shape: tuple[int, int]) -> Vectors:
    return _normalise(rng.standard_normal(shape, dtype=np.float32))


def _normalise(rows: Vectors) -> Vectors:
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def memory(size: int, seed: int = 0) -> tuple[Patterns, np.ndarray[Any, Any]]:
    """So many made-up int8 patterns, and queries: parts of 250,000 in 500 topics, each part with its columns moved on."""
    part, queries = synthetic_memory(PART, DIMENSION, 8, seed)
    values, scales = encode_patterns(part.values, "int8")
    assert scales is not None
    copies = size // len(values)
    whole = np.empty((copies * len(values), DIMENSION), dtype=np.int8)
    for copy in range(copies):
        whole[copy * len(values) : (copy + 1) * len(values)] = np.roll(values, copy * 3, axis=1)
    offsets = np.concatenate([part.offsets[:-1] + copy * len(values) for copy in range(copies)] + [[len(whole)]])
    return Patterns(whole, offsets.astype(np.int64), np.tile(scales, copies), "int8"), queries


def scan(sizes: list[int], runs: int) -> dict[str, Any]:
    """Milliseconds of one query, the fastest and the median of some, at each size; and of a million patterns more."""
    rows = []
    for size in sizes:
        patterns, queries = memory(size)
        top_k(patterns, queries[:1], k=10)
        times = []
        for run in range(runs):
            start = time.perf_counter()
            top_k(patterns, queries[run % len(queries)][None], k=10)
            times.append(1000 * (time.perf_counter() - start))
        gigabytes = (patterns.values.nbytes + 4 * len(patterns.values) + patterns.offsets.nbytes) / 1e9
        median = round(float(np.median(times)), 1)
        rows.append(
            {"patterns": len(patterns.values), "GB": round(gigabytes, 2), "fastest_ms": round(min(times), 1), "ms": median}
        )
        del patterns
    slope = {
        name: round(float(np.polyfit([row["patterns"] / 1e6 for row in rows], [row[name] for row in rows], 1)[0]), 2)
        for name in ("fastest_ms", "ms")
    }
    return {"rows": rows, "more_for_a_million": slope, "threads": cores(), "load": os.getloadavg()[0]}


def table(given: argparse.Namespace) -> list[dict[str, Any]]:
    """What each number of passages takes."""
    rows = []
    for passages in SIZES:
        patterns = passages * given.patterns
        int8, float32, binary = (patterns * size / 1e9 for size in (DIMENSION + 4, 4 * DIMENSION, DIMENSION / 8))
        seconds = patterns / 1e6 * given.scan_ms / 1000
        engine = passages * given.engine_bytes / 1e9
        rows.append(
            {
                "passages": passages,
                "patterns": round(patterns),
                "float32_GB": round(float32),
                "int8_GB": round(int8, 1),
                "binary_GB": round(binary, 1),
                "exact_seconds_a_query": round(seconds, 2),
                "exact_queries_a_second": round(1 / seconds, 3),
                "encoding_core_days": round(patterns / given.encode / 86_400, 1),
                # Two cores, as the scan was measured with, are paid as the memory that comes with them.
                "exact_dollars_a_month": round(max(int8, 16) * given.ram_dollars),
                "engine_GB": round(engine),
                "engine_index_GB": round(passages * given.engine_index_bytes / 1e9),
                "engine_dollars_a_month": round(
                    engine * given.disk_dollars + passages * given.engine_index_bytes / 1e9 * given.ram_dollars
                ),
            }
        )
    return rows


def main() -> None:
    """Measure or compute, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["texts", "scan", "table"])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--sizes", default="1000000,2000000,5000000", help="patterns, in parts of 250,000")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--patterns", type=float, default=4.0, help="a passage, as `texts` measures it")
    parser.add_argument("--scan-ms", type=float, default=62.0, help="of a million patterns, as `scan` measures it")
    parser.add_argument("--encode", type=float, default=140.0, help="patterns a second and core (assumed: see bench encoder)")
    parser.add_argument(
        "--engine-bytes", type=float, default=27_000.0, help="a passage in PostgreSQL, of the guide to engines"
    )
    parser.add_argument("--engine-index-bytes", type=float, default=10_800.0, help="of it what searches want in memory")
    parser.add_argument("--ram-dollars", type=float, default=5.0, help="a GB and month, with a core for each 8 GB (assumed)")
    parser.add_argument("--disk-dollars", type=float, default=0.1, help="a GB and month (assumed)")
    given = parser.parse_args()
    if given.what == "texts":
        found: Any = texts(given.folders)
    elif given.what == "scan":
        found = scan([int(size) for size in given.sizes.split(",")], given.runs)
    else:
        found = {"assumed": {k: v for k, v in vars(given).items() if isinstance(v, float)}, "rows": table(given)}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
