"""Writes to an index until it is killed, once for each line on standard input, and prints each commit."""

from __future__ import annotations

import os
import sys

from langchain_core.documents import Document

from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.retrieval.index.index import Index
from tests.retrieval.conftest import BagOfWords, put

DIMENSION = 64


def writer_encoder() -> BagOfWords:
    return BagOfWords(dimension=DIMENSION, max_tokens=1000)


def text(number: int) -> str:
    return " ".join(f"Sentence {part} of document {number} speaks of subject{number}." for part in range(1 + number % 9))


def document(number: int, content: int) -> Document:
    """One that is linked with others in an evidence graph."""
    metadata = {"title": f"Document {number}", "entities": [f"subject {number % 5}"]}
    return Document(text(content), id=str(number), metadata=metadata)


def report(what: str, number: int) -> None:
    """Print a line in one piece: `print` without a buffer writes it word by word, and a kill can come between."""
    os.write(1, f"{what} {number}\n".encode())


def write(folder: str) -> None:
    encoder = writer_encoder()
    index = Index(folder)
    held = {int(passage.document.id) for passage in read(index.snapshot())}
    start = max(held, default=-1) + 1
    for number in range(start, start + 100_000):
        if number % 10 == 9:
            # Now and then everything else that writes.
            put(index, [document(number - 1, number)], encoder, replace=True)
            report("updated", number - 1)
            # Where the writer before was killed after this deletion, it is done.
            if number - 2 >= start or number - 2 in held:
                index.delete([str(number - 2)])
                report("deleted", number - 2)
        if number % 40 == 39:
            index.compact()
        put(index, [document(number, number)], encoder)
        report("added", number)


if __name__ == "__main__":
    for _line in sys.stdin:
        child = os.fork()
        if not child:
            report("started", os.getpid())
            write(sys.argv[1])
        os.waitpid(child, 0)
        report("ended", child)
