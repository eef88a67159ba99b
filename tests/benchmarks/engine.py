"""An engine with a million made-up patterns: its bulk path, and its own search and ours apart.

    python -m tests.benchmarks.engine --passages 250000 --url "postgresql://...?collection=bench"

Vectors are clusters with noise and words follow Zipf's law: times can be compared with each other, not quoted for real text.
Without --url a server of its own is used, which is gone at the end. Passages that are there already are not loaded again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.corpus import EngineCorpus
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.words import content_words
from tests.fake_encoder import WordEncoder
from tests.postgres_server import pgvector_server

DIMENSION = 384
WINDOWS = 4
CLUSTERS = 2_000
_BLOCK = 2_000
_WORDS = 70
_VOCABULARY = 50_000
_OWN = 40  # Words of a cluster.


class MadeUp:
    """Passages in blocks, each the same whenever it is asked for."""

    def __init__(self, passages: int) -> None:
        self.passages = passages
        rng = np.random.default_rng(0)
        self._centres = rng.standard_normal((CLUSTERS, DIMENSION), dtype=np.float32)
        odds = 1 / np.arange(1, _VOCABULARY + 1)
        self._odds = np.cumsum(odds / odds.sum())
        [stem] = content_words("wordless")
        self._vocabulary = np.array([f"{stem}{number}" for number in range(_VOCABULARY + CLUSTERS * _OWN)])

    def blocks(self) -> Iterator[list[StoredPassage]]:
        for start in range(0, self.passages, _BLOCK):
            yield self.block(start, min(_BLOCK, self.passages - start))

    def vectors(self, start: int, count: int) -> tuple[Vectors, Any]:
        """The patterns (count, 1 + windows, d) of a block, and the cluster of each passage."""
        rng = np.random.default_rng(start + 1)
        clusters = rng.integers(CLUSTERS, size=count)
        whole = self._centres[clusters] + 0.8 * rng.standard_normal((count, DIMENSION), dtype=np.float32)
        windows = whole[:, None] + 0.8 * rng.standard_normal((count, WINDOWS, DIMENSION), dtype=np.float32)
        every = np.concatenate([whole[:, None], windows], axis=1)
        every /= np.linalg.norm(every, axis=-1, keepdims=True)
        return every, clusters

    def block(self, start: int, count: int) -> list[StoredPassage]:
        vectors, clusters = self.vectors(start, count)
        rng = np.random.default_rng((start + 1, 1))
        common = np.searchsorted(self._odds, rng.random((count, _WORDS - 20)))
        own = _VOCABULARY + clusters[:, None] * _OWN + rng.integers(_OWN, size=(count, 20))
        spans = [(100 * number, 100 * number + 99) for number in range(WINDOWS)]
        found = []
        for number, (rows, words) in enumerate(zip(vectors, self._vocabulary[np.concatenate([common, own], 1)], strict=True)):
            name, text = f"p{start + number}", " ".join(words.tolist())
            terms = Counter(content_words(text)) if start == number == 0 else Counter(words.tolist())
            assert sum(terms.values()) == _WORDS
            found.append(StoredPassage(name, name, text, {"year": 1900 + number % 100}, spans, rows, terms, name.encode()))
        return found

    def questions(self, count: int) -> tuple[list[str], Vectors]:
        """Words and a vector near those of a passage for each."""
        rng = np.random.default_rng(7)
        texts, states = [], []
        for _ in range(count):
            place = int(rng.integers(self.passages))
            start = place // _BLOCK * _BLOCK
            rows, _ = self.vectors(start, min(_BLOCK, self.passages - start))
            state = rows[place - start, 1 + rng.integers(WINDOWS)] + 0.03 * rng.standard_normal(DIMENSION, dtype=np.float32)
            states.append(state / np.linalg.norm(state))
            words = self.block(start, min(_BLOCK, self.passages - start))[place - start].text.split()
            texts.append(" ".join(rng.choice(words, 5, replace=False).tolist()))
        return texts, np.array(states, dtype=np.float32)


class Given(WordEncoder):
    """Gives the vectors that belong to questions."""

    dimension = DIMENSION

    def __init__(self, texts: Sequence[str], states: Vectors) -> None:
        super().__init__()
        self._states = dict(zip(texts, states, strict=True))

    def _encode(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._states[text] for text in texts])


class Timed:
    """An engine that notes how long each of its methods takes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                self.seconds[name] += time.perf_counter() - start

        return timed if callable(method) else method


def load(engine: Engine, made: MadeUp) -> None:
    engine.open(DIMENSION, Given.name, create=True)
    there = engine.count()
    if there >= made.passages:
        # It may have been stopped while its indexes were built.
        engine.settle()
        return
    start = time.perf_counter()
    writing = 0.0
    done = 0
    with engine.loading():
        for block in made.blocks():
            if len(engine.digests([passage.document for passage in block])) == len(block):
                continue
            begun = time.perf_counter()
            engine.put(block)
            writing += time.perf_counter() - begun
            done += len(block)
            if done % 50_000 == 0:
                print(f"{done:,} passages written, {writing:.0f} s", flush=True)
    engine.settle()
    total = time.perf_counter() - start
    print(f"loaded {done:,} passages in {total:.0f} s: {writing:.0f} s of writing, made-up data and indexes the rest")


def ask(engine: Engine, texts: Sequence[str], states: Vectors, candidates: int) -> None:
    timed = Timed(engine)
    retriever = HopfieldRetriever(
        corpus=EngineCorpus(timed, candidates=candidates), encoder=Given(texts, states), k=10, model="untrained"
    )
    rows = []
    for text in texts:
        timed.seconds.clear()
        start = time.perf_counter()
        retriever.invoke(text)
        total = time.perf_counter() - start
        rows.append({"total": total, "ours": total - sum(timed.seconds.values()), **timed.seconds})
    # The first ones read the indexes from disk.
    kept = rows[len(rows) // 10 :]
    for name in kept[0]:
        every = sorted(1000 * row[name] for row in kept)
        print(
            f"  {name}: {statistics.median(every):.1f} ms median, {every[int(0.95 * len(every))]:.1f} ms at the 95th per cent"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of the engine, with a collection that may be filled")
    parser.add_argument("--passages", type=int, default=250_000, help="of one pattern and four windows each")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--candidates", default="100", help="numbers of candidates to compare: 50,100,200")
    arguments = parser.parse_args()
    made = MadeUp(arguments.passages)
    with ExitStack() as stack:
        url = arguments.url or f"{stack.enter_context(pgvector_server())}?collection=bench"
        engine = open_engine(url)
        load(engine, made)
        texts, states = made.questions(arguments.questions)
        for candidates in map(int, arguments.candidates.split(",")):
            print(f"{made.passages * (1 + WINDOWS):,} patterns, {candidates} candidates:")
            ask(engine, texts, states, candidates)


if __name__ == "__main__":
    main()
