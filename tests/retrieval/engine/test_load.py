"""Loading many documents into an engine: stopped, failed and run again, nothing is lost, doubled or encoded twice."""

from __future__ import annotations

import itertools
import threading
from functools import partial

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.changes import Committed
from langgraph_convcoa.retrieval.encoders.base import RecentEncoder
from langgraph_convcoa.retrieval.engine.load import load_into, loading_elsewhere
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.bounds import SECONDS, joined, run_in_threads, wait_until
from tests.fake_encoder import WordEncoder
from tests.memory_engine import MemoryEngine

BATCH = 64


@pytest.fixture(autouse=True, scope="module")
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("langgraph_convcoa.retrieval.changes._BATCH_DOCUMENTS", BATCH)
        yield


def some(count, first=0):
    for number in range(first, first + count):
        text = f"Sentence of document {number}. " * (80 if number % 50 == 9 else 2)
        yield Document(text, id=f"d{number}", metadata={"title": f"Title {number}"})


def contents(engine):
    names = [f"d{number}" for number in range(400)]
    stored = engine.patterns([part for parts in engine.parts(names).values() for part in parts])
    assert len(stored) == engine.count()
    return {one.id: (one.text, one.document, one.digest, np.asarray(one.vectors).tobytes()) for one in stored}


@pytest.fixture(scope="module")
def whole():
    engine = MemoryEngine()
    assert load_into(engine, some(250), WordEncoder()) == Committed((), 250, 0, 0, engine.count(), 250)
    assert engine.count() > 250
    return contents(engine)


def test_a_second_run_encodes_and_writes_only_what_has_changed(whole):
    engine, encoder = MemoryEngine(), WordEncoder()
    load_into(engine, some(250), encoder)
    encoder.encoded.clear()
    changed = [Document("Another text.", id="d9"), *some(240, 10)]
    assert load_into(engine, changed, encoder) == Committed((), 0, 1, 240, 1, 241)
    assert set(encoder.encoded) == {"Another text."}
    held = contents(engine)
    # Of the long document that became short, no part is left.
    assert engine.parts(["d9"]) == {"d9": ["d9"]}
    assert {name: one for name, one in held.items() if not name.startswith("d9#") and name != "d9"} == {
        name: one for name, one in whole.items() if not name.startswith("d9#")
    }


class Failing(MemoryEngine):
    """Fails at the batch of this number, before it is written or after, as a connection may be lost at either."""

    batch, after = -1, False

    def put(self, passages):
        self.batch -= 1
        if self.batch != 0 or self.after:
            super().put(passages)
        if self.batch == 0:
            raise RetrievalError("the engine is gone")


def test_failed_at_any_batch_and_run_again_nothing_is_lost_or_doubled_and_nothing_written_is_encoded_again(whole):
    encoder = RecentEncoder(WordEncoder(), 5_000)
    for number, after in itertools.product(range(1, 5), (False, True)):
        engine = Failing()
        engine.batch, engine.after = number, after
        with pytest.raises(RetrievalError, match="the engine is gone"):
            load_into(engine, some(250), encoder)
        again = load_into(engine, some(250), encoder)
        there = min(BATCH * (number - 1 + after), 250)
        assert again == Committed((), 250 - there, 0, there, again.passages, 250)
        assert contents(engine) == whole


def test_ctrl_c_leaves_what_was_encoded_and_the_next_run_goes_on(whole):
    engine, encoder = MemoryEngine(), WordEncoder()

    def interrupted():
        yield from some(150)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_into(engine, interrupted(), encoder)
    assert len(engine.digests([f"d{number}" for number in range(150)])) == 2 * BATCH
    again = load_into(engine, some(250), encoder)
    assert (again.added, again.updated, again.unchanged) == (250 - 2 * BATCH, 0, 2 * BATCH)
    assert contents(engine) == whole


class Slow(MemoryEngine):
    """Ends the first transaction when the test says so."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def put(self, passages):
        assert self.go.wait(SECONDS)
        super().put(passages)


def test_a_document_that_comes_again_is_stored_as_it_was_given_last():
    engine = MemoryEngine()
    load_into(engine, [*some(BATCH * 2), Document("Another text.", id="d70"), *some(BATCH * 2 - 2, BATCH * 2)], WordEncoder())
    [found] = engine.patterns(engine.parts(["d70"])["d70"])
    assert found.text == "Another text."


def test_a_passage_whose_id_is_that_of_a_document_of_the_next_batch_is_refused():
    engine = MemoryEngine()
    long = Document("Sentence of a long document. " * 80, id="long")
    documents = [*some(BATCH), long, *some(BATCH - 1, BATCH), Document("Short.", id="long#1"), *some(10, 2 * BATCH)]
    with pytest.raises(RetrievalError, match="long#1"):
        load_into(engine, documents, WordEncoder())
    assert len(engine.parts(["long"])["long"]) > 1


def test_no_more_is_read_than_the_engine_can_take():
    engine, read, encoder = Slow(), [], RecentEncoder(WordEncoder(), 5_000)
    documents = (read.append(document.id) or document for document in some(BATCH * 7))
    thread = threading.Thread(target=load_into, args=(engine, documents, encoder), daemon=True)
    thread.start()
    try:
        # One is written, four wait.
        wait_until(lambda: len(read) >= 5 * BATCH, "five batches")
        thread.join(1)
        assert len(read) == 5 * BATCH
    finally:
        engine.go.set()
    joined([thread])
    assert len(read) == BATCH * 7


def test_several_threads_load_parts_of_one_collection(whole):
    engine = MemoryEngine()
    documents = list(some(250))
    run_in_threads(partial(load_into, engine, documents[part::3], WordEncoder()) for part in range(3))
    assert contents(engine) == whole


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (Document("Text.", id="a\0b"), "NUL"),
        (Document("Text.", id="a\ud83d"), "half a character"),
        (Document("Text.", id="i" * 5_000), "1 to 1,000 bytes"),
        (Document("Text.", id="a", metadata={"score": float("nan")}), "finite"),
        (Document("Text.", id="a", metadata={"made": {1, 2}}), "cannot be stored"),
        (Document("Text.", id="a", metadata={"names": [{"of": "Ada\0"}]}), "NUL"),
        (Document("word " * 10_000_000, id="a"), "50,000,000 characters"),
    ],
    ids=["nul", "surrogate", "long-id", "nan", "set", "nul-inside", "50-mb"],
)
def test_what_cannot_be_stored_is_told_before_anything_of_its_batch_is_written(bad, said):
    engine, encoder = MemoryEngine(), WordEncoder()
    with pytest.raises(InputError, match=said):
        load_into(engine, [*some(80), bad], encoder)
    assert engine.count() == 0
    with pytest.raises(InputError, match=said):
        load_into(engine, iter([*some(80), bad]), encoder)
    assert set(engine.digests([f"d{number}" for number in range(80)])) == {f"d{number}" for number in range(BATCH)}


class Own(MemoryEngine):
    """As one of a user's may be: without a time-out and without a faster path."""

    def __init__(self):
        super().__init__()
        self.settled = []

    def settle(self):
        self.settled.append(self.count())


def test_an_engine_of_ones_own_needs_no_time_out_and_no_faster_path():
    engine = Own()
    load_into(engine, some(70), WordEncoder())
    with loading_elsewhere(engine):
        load_into(engine, some(10, 70), WordEncoder(), settle=False)
    assert engine.settled == [72, 82]  # Two documents have two passages each.
    assert len(HopfieldRetriever.from_engine(engine, encoder=WordEncoder(), k=3).invoke("document 7")) == 3
