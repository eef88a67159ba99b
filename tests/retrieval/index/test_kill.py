"""Writers that are killed, disks that are full, processes that read while another writes."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.retrieval.graph.index import GraphIndex
from langgraph_convcoa.retrieval.index.index import GRAPH_FILE, Index, open_or_create
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests import ROOT
from tests.bounds import SECONDS, run_python, started
from tests.retrieval.conftest import as_anew, put
from tests.retrieval.index.writer import text, writer_encoder

KILLS = 50
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

pytestmark = pytest.mark.slow


@pytest.fixture
def encoder():
    return writer_encoder()


class Writers:
    """Starts writers to an index, one after another."""

    def __init__(self, process):
        self.process = process

    def start(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[1])

    def reports(self, count):
        return [self.process.stdout.readline().split() for _ in range(count)]

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        lines = iter(self.process.stdout.readline, "")
        return list(itertools.takewhile(lambda words: words[0] != "ended", map(str.split, lines)))


@contextmanager
def writers_to(folder):
    command = [sys.executable, "-m", "tests.retrieval.index.writer", str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(command, 5 * SECONDS, cwd=ROOT, env=ENVIRONMENT, text=True, **pipes) as process:
        yield Writers(process)


def contents(folder):
    """What an index holds: the text of each of its documents, everything checked."""
    index = Index(folder)
    index.verify()
    documents = [passage.document for passage in read(index.snapshot())]
    return {int(document.id): document.page_content for document in documents}


def test_a_writer_killed_at_50_random_moments_leaves_50_readable_indexes(tmp_path, encoder, capsys):
    """What was reported as done stands, and the graph is the one of the documents that are there."""
    folder = tmp_path / "index"
    assert open_or_create(folder, encoder, dtype="int8", settings={"graph": True}).save_graph()
    expected: dict[int, str] = {}
    chance, readable, reported = random.Random(0), 0, 0
    with writers_to(folder) as writers:
        for _ in range(KILLS):
            pid = writers.start()
            first = writers.reports(chance.randint(1, 60))
            time.sleep(chance.uniform(0, 0.01))
            for done, name in [*first, *writers.kill(pid)]:
                number = int(name)
                if done == "deleted":
                    del expected[number]
                else:
                    expected[number] = text(number + 1 if done == "updated" else number)
                reported += 1
            held = contents(folder)
            readable += 1
            GraphIndex.load(folder / GRAPH_FILE)
            as_anew((opened := Index(folder)).graph, opened)
            # The one change that was under way may have been committed without having been reported.
            differing = [number for number in held.keys() | expected.keys() if held.get(number) != expected.get(number)]
            assert len(differing) <= 1
            lost = expected.keys() - held.keys()
            assert all(number % 10 == 7 and number + 1 in held for number in lost), "only a deletion takes a document away"
            expected = held
    with capsys.disabled():
        print(f"\n{KILLS} kills: {readable} readable indexes, {reported} commits reported, none lost")
    assert reported > KILLS


HOLD = """
import sys, time
from langchain_core.documents import Document
from langgraph_convcoa.retrieval.index.index import Index
from tests.retrieval.index.writer import writer_encoder
commits = Index(sys.argv[1]).ingest([Document(f"Document {i}.", id=f"d{i}") for i in range(300)], writer_encoder())
next(commits)
print("holding", flush=True)
time.sleep(600)
"""


def test_a_writer_that_was_killed_holds_no_lock(tmp_path, encoder):
    folder = tmp_path / "index"
    open_or_create(folder, encoder)
    command = [sys.executable, "-c", HOLD, str(folder)]
    with started(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        with pytest.raises(RetrievalError, match="written to by another process"):
            Index(folder).delete(["d0"])
        assert len(Index(folder)) == 256
        process.kill()
    assert put(Index(folder), [Document("Mine.", id="mine")], encoder) == ["mine"]


def test_readers_see_each_commit_while_another_process_writes(tmp_path, encoder):
    folder = tmp_path / "index"
    open_or_create(folder, encoder)
    seen = set()
    with writers_to(folder) as writers:
        pid = writers.start()
        retriever = HopfieldRetriever.from_pretrained(folder, encoder=encoder, k=3)
        end = time.monotonic() + SECONDS
        while len(retriever.corpus) < 60 or len(seen) <= 5:
            assert time.monotonic() < end, f"no more than {len(retriever.corpus)} documents"
            found = retriever.invoke("What is said of subject3?")
            assert all(document.page_content in (text(int(document.id)), text(int(document.id) + 1)) for document in found)
            assert len({document.id for document in found}) == len(found)
            seen.add(len(retriever.corpus))
        writers.kill(pid)
    assert len(seen) > 5


FULL = """
import resource, sys
from langchain_core.documents import Document
from langgraph_convcoa.errors import ConvCoAError
from langgraph_convcoa.retrieval.index.index import Index
from tests.retrieval.conftest import put
from tests.retrieval.index.writer import writer_encoder
encoder = writer_encoder()
index = Index(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for number in range(1000):
    try:
        put(index, [Document(f"Document {number}. " * 40, id=str(number))], encoder)
    except ConvCoAError as error:
        print(number, len(index), error)
        break
"""


@pytest.mark.parametrize(("limit", "what"), [(80_000, "index.sqlite"), (40_000, "patterns")])
def test_a_full_disk_is_told_and_loses_nothing(tmp_path, encoder, limit, what):
    folder = tmp_path / "index"
    # Room for the database is scarcer than for patterns of one byte each.
    open_or_create(folder, encoder, dtype="int8" if what == "index.sqlite" else "float32")
    done = run_python("-c", FULL, folder, limit)
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stderr
    number, count, message = lines[0].split(" ", 2)
    assert str(folder) in message
    assert "make room on the disk" in message
    assert int(count) > 0
    index = Index(folder)
    index.verify()
    assert len(index.snapshot().listed()) == int(number)
    put(index, [Document("After room was made.", id="after")], encoder)
    index.verify()


def test_a_save_that_is_killed_leaves_the_old_index_or_the_new(tmp_path, encoder):
    folder = tmp_path / "index"
    HopfieldRetriever.from_texts(["Old."], ids=["old"], encoder=encoder).save_pretrained(folder)
    code = f"""
from tests.retrieval.index.writer import writer_encoder
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
encoder = writer_encoder()
names = [f"n{{i}}" for i in range(2000)]
retriever = HopfieldRetriever.from_texts([f"New {{name}}." for name in names], ids=names, encoder=encoder)
print("ready", flush=True)
while True:
    retriever.save_pretrained({str(folder)!r})
"""
    chance = random.Random(0)
    for _ in range(5):
        with started([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0, 0.5))
        index = Index(folder)
        index.verify()
        assert len(index) in (1, 2000)
