"""Loading into an engine, measured on a PostgreSQL with pgvector of its own: `python -m tests.benchmarks.loading WHAT`.

`throughput` is passages a second of `load_into`, encoding taking no time, over those of the engine's fastest path alone;
`ray` is encoding with workers of Ray over one process, each on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from statistics import median
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.retrieval.changes import entries_of
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage, stored_passages
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.load import load_into, ray_load
from tests import ROOT
from tests.fake_encoder import MadeUpEncoder
from tests.postgres_server import pgvector_server
from tests.retrieval.engine.killed import contents

_DISTINCT = 40_000
_TOGETHER = 1_280  # Passages in a transaction of the fastest path.
_SENTENCES, _WORDS = 6, 15


@cache
def _texts(count: int) -> list[str]:
    chance = random.Random(18)
    known = (ROOT / "langgraph_convcoa" / "text" / "english_words.txt").read_text(encoding="utf-8").split()
    weights = [*accumulate(1 / (rank + 10) for rank in range(len(known)))]
    texts = []
    for _ in range(count):
        words = chance.choices(known, cum_weights=weights, k=_SENTENCES * _WORDS)
        parts = [words[start : start + _WORDS] for start in range(0, len(words), _WORDS)]
        texts.append(" ".join(f"{' '.join(part).capitalize()}." for part in parts))
    return texts


def documents(count: int, distinct: int = _DISTINCT) -> Iterator[Document]:
    """Documents of one passage of about 90 English words; after `distinct` their texts come again."""
    texts = _texts(min(count, distinct))
    for number in range(count):
        place = number % len(texts)
        yield Document(texts[place], id=f"d{number}", metadata={"title": f"Title {place}"})


def throughput(address: str, count: int, runs: int) -> dict[str, Any]:
    """Seconds of both, in alternation; `settled` are those of the indexes that searches need, which the engine builds last."""
    encoder: Encoder = MadeUpEncoder()
    prepared = stored_passages([*entries_of(documents(min(count, _DISTINCT)))], encoder)

    def again() -> Iterator[list[StoredPassage]]:
        for start in range(0, count, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, count))
            yield [replace(prepared[i % len(prepared)], id=f"d{i}", document=f"d{i}") for i in numbers]

    every: list[dict[str, Any]] = []
    for run in range(runs):
        alone = _Watched(open_engine(address, collection=f"alone_{run}"))
        alone.engine.open(encoder.dimension, encoder.name, create=True)
        begun = _now()
        with alone.loading():
            for batch in again():
                alone.put(batch)
        alone.settle()
        bulk = alone.times(begun)
        whole: Any = _Watched(open_engine(address, collection=f"whole_{run}"))
        begun = _now()
        done = load_into(whole, documents(count), encoder)
        load = whole.times(begun)
        assert (done.added, done.passages) == (count, count)
        begun = _now()
        done = load_into(whole, documents(count), encoder)
        second = _now()[0] - begun[0]
        assert done.unchanged == count
        every.append(
            {
                "bulk alone, s": bulk,
                "load, s": load,
                "ratio while writing": bulk["written"] / load["written"],
                "ratio in all": bulk["all"] / load["all"],
                "passages a second": count / load["written"],
                "run again with nothing to do, s": second,
            }
        )
    return {
        "passages": count,
        "windows a passage": len(prepared[0].spans),
        "runs": every,
        "median ratio while writing": median(one["ratio while writing"] for one in every),
        "median ratio in all": median(one["ratio in all"] for one in every),
        "load average": os.getloadavg(),
    }


class _Watched:
    """An engine, and when it had written everything and begun to settle."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self._written = engine, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def put(self, passages: Sequence[StoredPassage]) -> None:
        self.engine.put(passages)
        self._written = time.perf_counter()

    def times(self, begun: tuple[float, float]) -> dict[str, float]:
        (start, before), (end, after) = begun, _now()
        seconds = {"written": self._written - start, "settled": end - self._written, "all": end - start}
        return {**seconds, "processor, without the server's": after - before}


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def ray(address: str, count: int, workers: int, runs: int) -> dict[str, Any]:
    """Passages a second from the first that is written to the last, of one process and of workers, in alternation."""
    os.environ["OMP_NUM_THREADS"] = "1"
    rates: dict[str, list[float]] = {"one process": [], f"{workers} workers": []}
    stored: list[Any] = []
    for run in range(runs):
        for what, number in (("one process", 0), (f"{workers} workers", workers)):
            collection = f"ray_{run}_{number}"
            opened = partial(open_engine, address, collection=collection)
            seen: list[tuple[float, int]] = []

            def note(done: int, _total: int, seen: list[tuple[float, int]] = seen) -> None:
                seen.append((time.perf_counter(), done))

            encoder = SentenceTransformerEncoder()
            if number:
                ray_load(opened, documents(count, count), encoder, workers=number, progress=note)
            else:
                load_into(opened(), documents(count, count), encoder, progress=note)
            (start, first), (end, last) = seen[0], seen[-1]
            rates[what].append((last - first) / (end - start))
            stored.append(contents(opened(), [f"d{i}" for i in range(count)], encoder))
    one, many = rates.values()
    return {
        "passages": count,
        "passages a second": rates,
        "best over best": max(many) / max(one),
        "run by run": [b / a for a, b in zip(one, many, strict=True)],
        "equal": all(one == stored[0] for one in stored),
        "load average": os.getloadavg(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["throughput", "ray"])
    parser.add_argument("--passages", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3, help="throughput and ray: both ways, one after the other, so often")
    given = parser.parse_args()
    with pgvector_server() as server:
        if given.what == "throughput":
            report = throughput(server, given.passages or 200_000, given.runs)
        else:
            report = ray(server, given.passages or 3_000, given.workers, given.runs)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
