"""Shards as actors of Ray: equal to one index; one cluster of this machine for all tests here."""

import random

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.shards.workers import ShardError
from tests.retrieval.shards.local import compare, whole
from tests.retrieval.shards.test_processes import make_shards

ray = pytest.importorskip("ray")
# Starting Ray takes 14 s on a machine that is idle.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folders, one = make_shards(tmp_path_factory.mktemp("shards"), 2)
    with HopfieldRetriever.from_shards(folders, encoder=one.encoder, workers="ray", timeout=120) as sharded:
        yield one, sharded, folders
    assert not ray.is_initialized()


def test_actors_answer_as_one_index_does(two):
    one, sharded, _ = two
    assert compare(one, sharded, random.Random(1), 20) > 0


async def test_actors_answer_asynchronously(two):
    one, sharded, _ = two
    assert whole(await sharded.ainvoke("robin lipal")) == whole(one.invoke("robin lipal"))


def test_a_killed_actor_is_an_error_and_is_started_again(two):
    one, sharded, _ = two
    ray.kill(sharded.corpus._crew.workers[1]._actor)
    with pytest.raises(ShardError, match=r"The shard .*/1 did not answer: its actor ended \(ActorDiedError\)"):
        sharded.invoke("robin")
    assert whole(sharded.invoke("robin")) == whole(one.invoke("robin"))


def test_an_actor_that_takes_too_long_is_ended(two):
    one, sharded, _ = two
    sharded.corpus.timeout = 1e-4
    with pytest.raises(ShardError, match="did not answer"):
        sharded.invoke("robin")
    sharded.corpus.timeout = 120
    assert whole(sharded.invoke("robin")) == whole(one.invoke("robin"))


def test_options_of_actors(two):
    one, _, folders = two
    with pytest.raises(InputError, match="2 shards and 1 ray_options"):
        HopfieldRetriever.from_shards(folders, encoder=one.encoder, workers="ray", ray_options=[{}])
    # Ray was there before, and stays.
    assert ray.is_initialized()
