"""Loading into a real engine, PostgreSQL with pgvector: loaders that are killed, and workers of Ray."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from functools import partial
from urllib.parse import quote

import pytest

from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.load import load_into, ray_load
from tests.bounds import run_python
from tests.postgres_server import PASSWORD
from tests.retrieval.engine.killed import contents, documents, encoder, killed

pytestmark = pytest.mark.slow
KILLS, SETTLINGS = 20, 4


def test_a_loader_killed_at_20_random_moments_and_run_again_loses_and_doubles_nothing(pgvector, capsys):
    report = killed(pgvector, KILLS, SETTLINGS)
    with capsys.disabled():
        print(f"\n{report}")
    assert report["kills"] == KILLS + SETTLINGS
    assert (report["lost"], report["doubled"], report["different"]) == (0, 0, 0)
    assert report["counted"] == report["passages"] > report["documents"]
    # They were killed on the way, not before or after it.
    assert len(set(report["passages after each"])) >= KILLS / 2


def dying(flag, address):
    """Opens the engine in a worker; the first that writes is killed in the middle of it."""
    engine = open_engine(address, collection="ray")
    put = engine.put

    def put_and_die(passages):
        put(passages)
        with suppress(FileNotFoundError):
            # Only one worker can remove the file.
            flag.unlink()
            os.kill(os.getpid(), 9)

    engine.put = put_and_die
    return engine


def test_workers_of_ray_load_the_same_as_one_process_though_one_of_them_is_killed(pgvector, tmp_path, monkeypatch):
    count = 3 * 256
    server = pgvector.replace(":" + quote(PASSWORD, safe=""), "")
    flag = tmp_path / "kill"
    flag.touch()
    names = [f"d{number}" for number in range(count)]
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        # Workers that have not the environment of this process, as those of another machine.
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        by_ray = ray_load(partial(dying, flag, server), documents(count), encoder(), workers=2)
    finally:
        ray.shutdown()
    one = open_engine(server, collection="one")
    done = load_into(one, documents(count), encoder())
    assert not flag.exists()
    # The batch of the worker that died was there when it came again.
    assert (by_ray.added, by_ray.updated, by_ray.given) == (done.added - by_ray.unchanged, 0, done.given)
    assert by_ray.unchanged == 256
    many = open_engine(server, collection="ray")
    assert contents(many, names) == contents(one, names)
    assert many.count() == one.count()
    one.close()
    many.close()


def test_without_ray_nothing_of_it_is_imported():
    code = "import sys, langgraph_convcoa.retrieval.engine.load; print({'ray'} & {*sys.modules})"
    assert run_python("-c", code).stdout == "set()\n"
