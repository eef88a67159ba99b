"""Time and memory of an evidence graph of many passages: `python -m tests.retrieval.graph.size 100000`."""

from __future__ import annotations

import random
import resource
import sys
import time

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.graph.index import GraphIndex
from langgraph_convcoa.retrieval.graph.settings import GraphSettings
from langgraph_convcoa.retrieval.graph.walk import FIRST, walk

WORDS = 120


def passages(count: int):
    """Passages of 120 words, each with a title of two, which name three other titles and eight names of a few passages."""
    random.seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(random.choices(letters, k=random.randint(3, 9))) for _ in range(20_000)]
    names = [f"{random.choice(words).title()} {random.choice(words).title()}" for _ in range(2 * count)]
    for number in range(count):
        text = random.choices(words, k=WORDS - 22)
        for _ in range(3):
            text.insert(random.randrange(len(text)), names[random.randrange(count)])
        for _ in range(8):
            text.insert(random.randrange(len(text)), names[count + random.randrange(count)])
        yield Document(" ".join(text), metadata={"title": names[number]})


def main() -> None:
    """Print what the graph takes."""
    count = int(sys.argv[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    index = GraphIndex(passages(count))
    read = time.process_time()
    links = index.links
    linked = time.process_time()
    took = []
    for seed in range(20):
        first = np.random.default_rng(seed).choice(count, FIRST, replace=False)
        start = time.process_time()
        walk(links, "Who was it?", first, np.linspace(1, 0, FIRST), GraphSettings())
        took.append(time.process_time() - start)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    once = 1000 * float(np.median(took))
    print(f"{count} passages, {len(links.entities)} entities, {links.edges} links; {memory:.0f} MB at most")
    print(f"processor time: read {read - began:.1f} s, linked {linked - read:.1f} s, a walk {once:.1f} ms")


if __name__ == "__main__":
    main()
