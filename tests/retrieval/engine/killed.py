"""Loads documents until it is killed, once for each line on standard input: `python -m tests.retrieval.engine.killed ...`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval import changes
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.engine.base import Engine
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
    """Every twentieth is of several passages."""
    for number in range(count):
        text = f"A sentence of document {number}. " * (300 if number % 20 == 7 else 3)
        yield Document(text, id=f"d{number}", metadata={"number": number})


def killed(address: str, count: int, kills: int) -> dict[str, Any]:
    """Kill loaders of the same documents, each some batches and some moment on, then let one end: is all there, and once."""
    chance = random.Random(18)
    engine = open_engine(address, collection=COLLECTION)
    names = [f"d{number}" for number in range(count)]
    there: list[int] = []
    ends = [0, 0]
    reached = 0
    command = [sys.executable, "-m", "tests.retrieval.engine.killed", address, str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started(command, 600, cwd=ROOT, env=environment, **pipes) as process:

        def said() -> list[str]:
            words: list[str] = process.stdout.readline().split()
            return words

        def start() -> int:
            process.stdin.write("\n")
            process.stdin.flush()
            line = said()
            assert line[0] == "started", line
            return int(line[1])

        def done() -> int:
            line = said()
            assert line[0] == "done", line
            return int(line[1])

        def last() -> str:
            """How it ended; what it had said before is read."""
            while (line := said())[0] != "ended":
                assert line[0] == "done", line
            return line[1]

        for _ in range(kills):
            pid = start()
            # Beyond what is there already, if at all.
            for _ in range(chance.randint(0, 3)):
                reached += BATCH
                while done() < min(reached, count - BATCH):
                    pass
            time.sleep(chance.uniform(0, 0.1))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            ends[last() == "0"] += 1
            there.append(engine.count())
        start()
        assert last() == "0"
    whole = MemoryEngine()
    load_into(whole, documents(count), encoder())
    held, expected = contents(engine, names), contents(whole, names)
    counted = engine.count()
    engine.close()
    return {
        "documents": count,
        "passages": len(expected),
        "kills": ends[0],
        "ended before": ends[1],
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
    def note(done: int, _total: int) -> None:
        say("done", done)

    changes._BATCH_DOCUMENTS = BATCH  # type: ignore[misc]
    load_into(open_engine(address, collection=COLLECTION), documents(count), encoder(), progress=note)


if __name__ == "__main__":
    for _line in sys.stdin:
        child = os.fork()
        if not child:
            say("started", os.getpid())
            load(sys.argv[1], int(sys.argv[2]))
            os._exit(0)
        say("ended", os.waitpid(child, 0)[1])
