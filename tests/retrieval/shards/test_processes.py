"""Shards in processes of their own: equal to one index, and gone with who asks them, however that ends."""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.shards.workers import ShardError
from tests import ROOT
from tests.bounds import started, wait_until
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.shards.local import compare, make_documents, make_trained, split_up, whole

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")


def make_shards(folder, count, *, seed=0, dtype="float32"):
    """Folders of indexes, and one index of all their documents."""
    choose, encoder = random.Random(seed), BagOfWords(dimension=48, max_tokens=40)
    parts = split_up(choose, make_documents(choose, 60), count)
    folders = [folder / str(number) for number in range(count)]
    for path, part in zip([*folders, folder / "all"], [*parts, [*itertools.chain(*parts)]], strict=True):
        HopfieldRetriever.from_documents(part, encoder=encoder, path=path, dtype=dtype, graph=False)
    return folders, HopfieldRetriever.from_pretrained(folder / "all", encoder=encoder)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folders, one = make_shards(tmp_path_factory.mktemp("shards"), 2)
    with HopfieldRetriever.from_shards(folders, encoder=one.encoder, timeout=60) as sharded:
        yield one, sharded


def processes(retriever):
    return [worker._child._process.pid for worker in retriever.corpus._crew.workers]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_answer_as_one_index_does(two):
    one, sharded = two
    assert compare(one, sharded, random.Random(1), 20) > 0


async def test_questions_side_by_side_do_not_meet(two):
    one, sharded = two
    questions = ["Robin lipal.", "Matordo kegus robin.", "Ligus.", "Kepal maden libin."] * 3
    expected = [whole(one.invoke(question)) for question in questions]
    found = await asyncio.gather(*(sharded.ainvoke(question) for question in questions))
    assert [whole(documents) for documents in found] == expected


def test_a_killed_shard_is_an_error_and_is_started_again(two):
    one, sharded = two
    os.kill(processes(sharded)[1], signal.SIGKILL)
    with pytest.raises(ShardError, match=r"The shard .*/1 did not answer: its process ended with -9; the next question"):
        sharded.invoke("robin")
    assert whole(sharded.invoke("robin")) == whole(one.invoke("robin"))


@pytest.mark.slow
def test_what_is_done_to_shards_in_processes(tmp_path):
    folders, one = make_shards(tmp_path, 3, seed=3, dtype="int8")
    model = make_trained(np.random.default_rng(0), one.encoder)
    one = one.model_copy(update={"model": model})
    with HopfieldRetriever.from_shards(folders, encoder=one.encoder, timeout=60, model=model) as sharded:
        pids = processes(sharded)
        assert compare(one, sharded, random.Random(2), 30) > 0
        # Deleted by another process, or another object of this one.
        gone = [document.id for document in one.invoke("robin", k=5)]
        for folder in folders:
            Index(folder).delete([name.partition("#")[0] for name in gone])
        one.delete([name.partition("#")[0] for name in gone])
        assert compare(one, sharded, random.Random(3), 20) > 0
        # One that stands still is ended when the time is up, and started again.
        sharded.corpus.timeout = 1.0
        os.kill(processes(sharded)[2], signal.SIGSTOP)
        with pytest.raises(ShardError, match=r"The shard .*/2 did not answer within"):
            sharded.invoke("robin")
        assert not alive(pids[2])
        sharded.corpus.timeout = 60.0
        assert whole(sharded.invoke("robin")) == whole(one.invoke("robin"))
        # An index in the place of another is not taken for it.
        (folders[0]).rename(tmp_path / "old")
        os.kill(processes(sharded)[0], signal.SIGKILL)
        for message in ("its process ended", "cannot be opened: .* holds no index"):
            with pytest.raises(ShardError, match=message):
                sharded.invoke("robin")
        make = HopfieldRetriever.from_texts(["Other."], ids=["other"], encoder=one.encoder, path=folders[0], dtype="int8")
        assert make.corpus.path == folders[0]
        with pytest.raises(ShardError, match="is not the index that was opened"):
            sharded.invoke("robin")
        left = processes(sharded)
    assert not any(map(alive, [*pids, *left]))
    with pytest.raises(RetrievalError, match="cannot be opened"):
        HopfieldRetriever.from_shards([folders[1], tmp_path / "none"], encoder=one.encoder)


_OWNER = """
import sys
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.conftest import BagOfWords

retriever = HopfieldRetriever.from_shards(sys.argv[2:], encoder=BagOfWords(dimension=48, max_tokens=40), timeout=60)
print(*(worker._child._process.pid for worker in retriever.corpus._crew.workers), flush=True)
if sys.argv[1] == "wait":
    while True:
        retriever.invoke("robin")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["end", "kill", "interrupt"])
def test_no_process_stays_behind(tmp_path, how):
    folders, _ = make_shards(tmp_path, 2)
    command = [sys.executable, "-c", _OWNER, "end" if how == "end" else "wait", *map(str, folders)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        if how != "end":
            assert all(map(alive, pids))
            process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
        process.wait(20)
        wait_until(lambda: not any(map(alive, pids)), "the end of the workers", 20)
