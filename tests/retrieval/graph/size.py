"""Processor time and memory of a graph of made-up passages: `python -m tests.retrieval.graph.size 100000`."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from timeit import timeit

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.bounds import kilobytes
from tests.fake_encoder import MadeUpEncoder

WORDS, QUESTIONS = 120, 20


def passages(count: int) -> Iterator[Document]:
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
        yield Document(" ".join(text), id=str(number), metadata={"title": names[number]})


def took(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    return timeit(work, timer=time.process_time, number=1)


def queries(retriever: HopfieldRetriever, questions: Sequence[str]) -> float:
    """Milliseconds of processor time a question."""
    return 1000 * float(np.median([took(lambda question=question: retriever.invoke(question)) for question in questions]))


def megabytes() -> float:
    return kilobytes("VmHWM") / 1024


def main() -> None:
    """Print what the graph takes, beside what the search takes without it."""
    count = int(sys.argv[1])
    made = list(passages(count))
    retriever = HopfieldRetriever.from_documents(made, encoder=MadeUpEncoder(), dtype="int8", graph=None)
    corpus = retriever.corpus
    questions = [" ".join(random.choices(made[number].page_content.split(), k=8)) for number in range(QUESTIONS)]
    retriever.invoke(questions[0])
    before = megabytes()
    built = took(lambda: corpus.graph.links(corpus.snapshot()))
    memory = megabytes() - before
    plain, walked = (queries(retriever.model_copy(update={"graph": graph}), questions) for graph in (False, True))
    links, _ = corpus.graph.links(corpus.snapshot())
    print(f"{count} passages, {len(links.entities)} entities, {links.shares.nnz} links")
    print(
        f"built in {built:.1f} s of processor time, {memory:.0f} MB more at most; a query {walked:.1f} ms, {plain:.1f} without"
    )


if __name__ == "__main__":
    main()
