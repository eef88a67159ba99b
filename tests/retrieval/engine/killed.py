"""Loads documents until it is killed, once for each line on standard input: `python -m tests.retrieval.engine.killed ...`."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval import changes
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.load import load_into
from tests import ROOT
from tests.bounds import started
from tests.memory_engine import MemoryEngine
from tests.retrieval.conftest import BagOfWords

COLLECTION = "killed"
BATCH = 16


def encoder() -> BagOfWords:
    return BagOfWords(dimension=64, max_tokens=1000)


def documents(count: int) -> Iterator[Document]:
    """Every twentieth is of several passages; they have no end if the count is 0."""
    for number in range(count) if count else itertools.count():
        text = f"A sentence of document {number}. " * (300 if number % 20 == 7 else 3)
        yield Document(text, id=f"d{number}", metadata={"number": number})


def killed(address: str, kills: int, settlings: int) -> dict[str, Any]:
    """Kill loaders of the same documents as they write, and some as they settle, then let one end: is all there, and once?

    No kill comes too late: a loader that is to be killed as it writes has documents without end, and one that has settled
    waits for its kill. The random moments are fractions of the time that a start and a batch take on this machine.
    """
    chance = random.Random(18)
    engine = open_engine(address, collection=COLLECTION)
    there: list[int] = []
    lines: list[list[str]] = []
    ends = inside = reached = 0
    opening = 0.1
    command = [sys.executable, "-m", "tests.retrieval.engine.killed", address]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started(command, 850, cwd=ROOT, env=environment, **pipes) as process:

        def start(count: int) -> int:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            return int(until("started")[1])

        def until(word: str, number: int = 0) -> list[str]:
            """The next line that begins with this word and has at least this number."""
            while True:
                words: list[str] = (process.stdout.readline() or "nothing").split()
                assert words[0] in (word, "writing", "written", "settling", "settled"), words
                lines.append(words)
                if words[0] == word and int(words[1]) >= number:
                    return words

        for number in range(kills + settlings):
            begun = time.monotonic()
            writes = number < kills
            pid = start(0 if writes else (reached + 4) * BATCH)
            until_struck = opening
            if not writes:
                until("settling")
            elif batches := chance.randint(0, 3):
                until("writing")
                opening = time.monotonic() - begun
                # Batches beyond those that are there already.
                until_struck = 2 * float(until("written", reached + batches)[2])
            time.sleep(chance.uniform(0, until_struck))
            os.kill(pid, signal.SIGKILL)
            ends += until("ended")[1] == str(signal.SIGKILL.value)
            inside += lines[-2][0] == "writing"
            reached = max((int(words[1]) for words in lines if words[0] == "written"), default=0)
            there.append(engine.count())
        count = (reached + 4) * BATCH
        start(count)
        until("settled")
    whole = MemoryEngine()
    load_into(whole, documents(count), encoder())
    names = [f"d{number}" for number in range(count)]
    held, expected = contents(engine, names), contents(whole, names)
    counted = engine.count()
    engine.close()
    return {
        "documents": count,
        "passages": len(expected),
        "kills": ends,
        "inside a batch": inside,
        "passages after each": there,
        "counted": counted,
        "lost": len(expected.keys() - held.keys()),
        "doubled": counted - len(held),
        "different": sum(held[name] != expected[name] for name in held.keys() & expected.keys()),
    }


def contents(engine: Engine, names: list[str], used: Encoder | None = None) -> dict[str, Any]:
    """All that is stored of some documents."""
    used = used or encoder()
    engine.open(used.dimension, used.name)
    ids = [part for parts in engine.parts(names).values() for part in parts]
    found = {}
    for start in range(0, len(ids), 1000):
        for one in engine.patterns(ids[start : start + 1000]):
            vectors = np.asarray(one.vectors, dtype=np.float32).tobytes()
            found[one.id] = (one.document, one.text, dict(one.metadata), list(one.spans), dict(one.terms), one.digest, vectors)
    return found


def say(*words: object) -> None:
    """A line at once, so that a loader is not killed in the middle of it and the next line follows on the same."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def load(address: str, count: int) -> None:
    """Say when each batch and the settling begin and end."""
    engine = open_engine(address, collection=COLLECTION)
    put, settle = engine.put, engine.settle
    numbers = itertools.count(1)

    def put_and_say(passages: Sequence[StoredPassage]) -> None:
        number, begun = next(numbers), time.monotonic()
        say("writing", number)
        put(passages)
        say("written", number, time.monotonic() - begun)

    def settle_and_say() -> None:
        say("settling", 0)
        settle()
        say("settled", 0)

    engine.put, engine.settle = put_and_say, settle_and_say  # type: ignore[method-assign]
    changes._BATCH_DOCUMENTS = BATCH  # type: ignore[misc]
    load_into(engine, documents(count), encoder())


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if not child:
            say("started", os.getpid())
            load(sys.argv[1], int(line))
            signal.pause()
        say("ended", os.waitpid(child, 0)[1])
