"""What is Milvus's own: no transactions, addresses, and how it fails."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import pytest
from pymilvus.exceptions import MilvusException

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.milvus.engine import MilvusEngine
from tests.bounds import SECONDS, run_python
from tests.retrieval.engine.test_protocol import DIMENSION, axis, contents, passage


@pytest.fixture(scope="module")
def address(milvus: str) -> str:
    return f"{milvus}?collection=own"


@pytest.fixture(scope="module")
def engine(address: str) -> MilvusEngine:
    engine = open_engine(address)
    assert isinstance(engine, MilvusEngine)
    engine.open(DIMENSION, "test", create=True)
    return engine


def test_killed_between_any_two_writes_and_put_again_nothing_is_left_and_no_half_document_has_a_digest(engine, monkeypatch):
    old = [passage("x", "x", words="old one"), passage("x#2", "x", words="old two", axis=1), passage("x#3", "x", axis=2)]
    new = [passage("x", "x", words="new one", axis=4, lang="en"), passage("x#2", "x", words="new two", axis=5)]
    engine.put(new)
    whole = contents(engine, ["x"])
    ask, steps = MilvusEngine._ask, 0

    def killed(self: MilvusEngine, limit: float, end: float, method: str, /, *arguments: Any, **named: Any) -> Any:
        nonlocal left
        if method in ("upsert", "delete"):
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return ask(self, limit, end, method, *arguments, **named)

    while True:
        engine.put(old)
        left = steps
        with monkeypatch.context() as patch:
            patch.setattr(MilvusEngine, "_ask", killed)
            try:
                engine.put(new)
                break
            except KeyboardInterrupt:
                pass
        # The old document is whole, or has no digest, so that it is loaded again.
        if "x" in engine.digests(["x"]):
            assert steps == 0
            assert len(engine.parts(["x"])["x"]) == 3
        # Whatever is found has the metadata that the filter asks for.
        named = engine.search(axis(4), 5, {"lang": "en"})[0]
        assert all(one.metadata == {"lang": "en"} for one in engine.patterns(named))
        engine.put(new)
        assert contents(engine, ["x"]) == whole
        assert set(engine.search(axis(0), 10)[0]) == {"x", "x#2"}
        steps += 1
    assert steps == 6
    assert contents(engine, ["x"]) == whole
    engine.delete(["x"])


@pytest.mark.parametrize(
    ("kind", "about"), [("passages", {"text": "𝄞" * 15_000}), ("windows", {"metadata": {"said": "é" * 5_000}})]
)
def test_messages_are_bounded_in_bytes_whatever_the_script_and_where_the_texts_are(kind, about, engine, monkeypatch):
    monkeypatch.setattr("langgraph_convcoa.retrieval.engine.milvus.engine._MOST_BYTES", 160_000)
    sent, ask = [], MilvusEngine._ask

    def watched(self: MilvusEngine, limit: float, end: float, method: str, /, *arguments: Any, **named: Any) -> Any:
        sent.extend(arguments[1:] if method == "upsert" and arguments[0] == kind else [])
        return ask(self, limit, end, method, *arguments, **named)

    monkeypatch.setattr(MilvusEngine, "_ask", watched)
    passages = [replace(passage(f"x{n}"), **about) for n in range(6)]
    engine.put(passages)
    assert all(len(json.dumps(message, ensure_ascii=False).encode()) <= 165_000 for message in sent)
    assert 2 <= len(sent) <= 4
    sent.clear()
    # What cannot be divided goes alone.
    monkeypatch.setattr("langgraph_convcoa.retrieval.engine.milvus.engine._MOST_BYTES", 100)
    engine.put(passages[:2])
    assert [len(message) for message in sent] == [1] * len(sent)
    engine.delete([one.id for one in passages])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"long": "x" * 40_000}, "texts in the metadata of the passage 'y' are too long"),
        ({"many": list(range(5_000))}, "too many entries in its metadata"),
    ],
)
def test_what_milvus_cannot_hold_is_said_before_anything_is_written(engine, metadata, message):
    with pytest.raises(InputError, match=message):
        engine.put([passage("z"), passage("y", **metadata)])
    assert engine.count() == 0


def test_a_version_that_is_not_known_and_a_collection_of_another_program_are_refused(address, engine, monkeypatch):
    monkeypatch.setattr(MilvusEngine, "version", 99)
    with pytest.raises(RetrievalError, match="is of version 3, and this library reads version 99"):
        open_engine(address).open(DIMENSION, "test", create=True)
    with pytest.raises(RetrievalError, match="version 3"):
        engine.put([passage("x")])
    assert engine.count() == 0
    with pytest.raises(InputError, match="vectors of 2 to 12,000 numbers here, not 20000"):
        open_engine(address, collection="large").open(20_000, "test", create=True)
    [client] = engine._clients.values()
    client.create_collection("convcoa_foreign_passages", dimension=4)
    with pytest.raises(RetrievalError, match="not made by this library"):
        open_engine(address, collection="foreign").open(DIMENSION, "test", create=True)


def test_a_server_counts_word_by_word_what_a_file_counts_at_once(engine, monkeypatch):
    engine.put([passage("x", words="one two two"), passage("y", words="two")])
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_file", False)
        by_word = engine.statistics(["one", "two", "three"])
    assert by_word == engine.statistics(["one", "two", "three"])
    assert dict(by_word.frequencies) == {"one": 1, "two": 2}
    engine.delete(["x", "y"])


def test_an_address_becomes_what_the_client_takes():
    engine = open_engine("milvuss://an%40n:p%2Fw@db.example.org:443/docs?collection=c")
    assert isinstance(engine, MilvusEngine)
    settings = {"uri": "https://db.example.org:443", "token": "an@n:p/w", "db_name": "docs"}
    assert engine._settings == settings
    assert engine.name == "The collection 'c' in Milvus at db.example.org"
    assert "p/w" not in repr(engine)


@pytest.mark.timeout(SECONDS)
def test_a_server_that_is_down_or_silent_is_given_up_within_the_time_out():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for attempt in ("silent", "down"):
            engine = open_engine(f"milvus://u:hunter22@127.0.0.1:{port}/x?collection=c", timeout=1)
            with pytest.raises(RetrievalError, match=r"cannot be reached within 1 s|did not answer within 1 s") as raised:
                engine.count()
            assert "hunter22" not in str(raised.value)
            assert raised.value.__cause__ is None
            if attempt == "silent":
                silent.close()


def test_a_server_that_is_full_is_said(engine, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise MilvusException(message="quota exceeded[reason=memory quota exceeded, token=hunter22-4711]")

    engine.put([passage("x")])
    with monkeypatch.context() as patch:
        patch.setattr(next(iter(engine._clients.values())), "upsert", full)
        with pytest.raises(RetrievalError, match=r"is full \(.*make room, and add the same documents again") as raised:
            engine.put([passage("y")])
    assert "hunter22" not in str(raised.value)
    engine.put([passage("y")])
    assert engine.count() == 2
    engine.delete(["x", "y"])


def test_a_folder_that_is_not_there_is_said(tmp_path):
    engine = open_engine(f"milvus+file://{tmp_path}/none/x.db?collection=c")
    with pytest.raises(RetrievalError, match="see that its folder is there"):
        engine.count()


_IDLE = """
import sys, time
from langgraph_convcoa.retrieval.engine.choose import open_engine
engine = open_engine(sys.argv[1])
engine.open(4, "test", create=True)
time.sleep(13)
print("passages:", engine.count(), flush=True)
"""


@pytest.mark.slow
def test_an_idle_connection_to_a_file_is_not_pinged_until_its_server_closes_it(tmp_path):
    # Three pings of 10 s each, unanswered by data, were "too_many_pings": what was asked just then failed as unreachable.
    address, traced = f"milvus+file://{tmp_path}/idle.db?collection=idle", {"GRPC_TRACE": "http_keepalive"}
    ended = run_python("-c", _IDLE, address, GRPC_VERBOSITY="debug", **traced)
    assert ended.stdout == "passages: 0\n"
    # The trace speaks: timers are there, but no ping was sent and answered.
    assert "Keepalive ping cancelled" in ended.stderr
    assert "Finish keepalive ping" not in ended.stderr
