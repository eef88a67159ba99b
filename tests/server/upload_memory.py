"""A program that indexes one large file as the server does, and prints what it held at most."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from langgraph_convcoa.retrieval.index.index import open_or_create
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.server.collections import Collection
from langgraph_convcoa.server.uploads import Jobs
from tests.bounds import kilobytes, wait_until
from tests.fake_encoder import WordEncoder


def main(folder: Path, file: Path) -> None:
    """Print by how many megabytes the memory grew at most, and what was not read."""
    encoder = WordEncoder()
    open_or_create(folder / "index", encoder, None, {})
    retriever = HopfieldRetriever.from_pretrained(folder / "index", encoder=encoder)
    collection = Collection("c", "C", "", retriever, folder)
    # What a server has loaded by the time of an upload.
    retriever.update([])
    before = kilobytes("VmRSS")
    with Jobs(folder / "waiting") as jobs:
        with file.open("rb") as stream:
            job = jobs.take("", collection, [(file.name, stream)])
        wait_until(lambda: job.ended, "the upload is indexed", 400)
    collection.as_json()
    print(json.dumps([round((kilobytes("VmHWM") - before) / 1e3), job.skipped]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
