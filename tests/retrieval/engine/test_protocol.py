"""What every engine does, over PostgreSQL with pgvector and over Milvus in a file."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fake_encoder import WordEncoder

DIMENSION = 8
_NUMBERS = count()


def passage(name: str, document: str | None = None, *, words: str = "", axis: int = 0, **metadata: Any) -> StoredPassage:
    vectors = np.zeros((3, DIMENSION), dtype=np.float32)
    vectors[:, axis] = 1
    vectors[2, (axis + 1) % DIMENSION] = 0.1
    terms = {word: words.split().count(word) for word in words.split()}
    text = words or name
    return StoredPassage(name, document or name, text, metadata, [(0, 1), (1, 2)], vectors, terms, f"{words}{axis}".encode())


def axis(number: int) -> np.ndarray[Any, Any]:
    return np.eye(DIMENSION, dtype=np.float32)[number : number + 1]


@pytest.fixture(params=["pgvector", "milvus"])
def anywhere(request: pytest.FixtureRequest) -> str:
    """The URL of a collection that is not there yet."""
    return f"{request.getfixturevalue(request.param)}?collection=any_{next(_NUMBERS)}"


@pytest.fixture
def engine(anywhere: str) -> Iterator[Engine]:
    engine = open_engine(anywhere)
    engine.open(DIMENSION, "test", create=True)
    yield engine
    engine.close()


def contents(engine: Engine, documents: list[str]) -> Any:
    parts = dict(sorted(engine.parts(documents).items()))
    stored = engine.patterns([name for names in parts.values() for name in names])
    held = [(p.id, p.document, p.text, p.metadata, p.spans, p.terms, p.digest, p.vectors.tobytes()) for p in stored]
    found = engine.statistics(["one", "two", "three", "four"])
    frequencies = {term: count for term, count in found.frequencies.items() if count}
    return parts, held, engine.digests(documents), (found.passages, found.mean_length, frequencies), engine.count()


def test_a_passage_comes_back_as_it_was_stored(engine):
    metadata = {"year": 2020, "big": 2**70, "tags": ["x", None], "deep": {"a": 0.5, "": {}}, "'\"": "\\%"}
    stored = passage('it\'s "#1" é', "it's é", words="one two two", axis=3, **metadata)
    other_id = 'it\'s "#2" é'
    engine.put([stored, replace(passage(other_id, "it's é", words="three"), digest=stored.digest)])
    [found, other] = engine.patterns([stored.id, "nothing", "a\0b", other_id])
    assert other.id == other_id
    for name in ("id", "document", "text", "metadata", "spans", "terms", "digest"):
        assert getattr(found, name) == getattr(stored, name)
    assert found.vectors.dtype == np.float32
    assert (found.vectors == stored.vectors).all()
    assert engine.parts(["it's é", "nothing", "a\0b"]) == {"it's é": [stored.id, other_id]}
    assert engine.digests(["it's é", "nothing", "a\0b"]) == {"it's é": stored.digest}
    assert engine.count() == 2
    assert engine.search(axis(3), 2, {"'\"": "\\%"}) == [[stored.id]]
    engine.delete(["it's é"])
    assert engine.count() == 0


def test_a_long_passage_with_many_windows_comes_back(engine):
    vectors = np.random.default_rng(0).standard_normal((301, DIMENSION)).astype(np.float32)
    text = "é𝄞" * 40_000
    engine.put([StoredPassage("x", "x", text, {}, [(n, n + 1) for n in range(300)], vectors, {"one": 3}, b"d")])
    [found] = engine.patterns(["x"])
    assert found.text == text
    assert (found.vectors == vectors).all()
    assert len(found.spans) == 300


@pytest.mark.parametrize(("server", "options"), [("pgvector", ""), ("pgvector", "&exact=0"), ("milvus", "")])
def test_the_nearest_passages_come_first_each_once_and_as_many_as_are_asked_for(request, server, options):
    engine = open_engine(f"{request.getfixturevalue(server)}?collection=any_{next(_NUMBERS)}{options}")
    engine.open(DIMENSION, "test", create=True)
    engine.put([passage(f"p{n}", axis=n % 4, even=n % 2 == 0) for n in range(200)])
    [first, second] = engine.search(np.concatenate([axis(2), axis(3)]), 50)
    assert set(first) == {f"p{n}" for n in range(200) if n % 4 == 2}
    assert len(second) == len(set(second)) == 50
    [every] = engine.search(axis(1), 300)
    assert len(every) == 200
    [odd] = engine.search(axis(2), 60, {"even": False})
    assert len(odd) == 60
    assert all(int(name[1:]) % 2 for name in odd)
    engine.close()


def test_words_name_the_best_by_bm25_and_count_what_is_there(engine):
    engine.put([passage("a", words="apple pear"), passage("b", words="apple apple fig", n=1), passage("c", words="fig")])
    engine.put([passage("d")])
    found = engine.statistics(["apple", "fig", "plum"])
    assert (found.passages, found.mean_length, dict(found.frequencies)) == (3, 2.0, {"apple": 2, "fig": 2})
    assert engine.words({"apple": 1.0}, 2.0, 5) == ["b", "a"]
    assert engine.words({"apple": 1.0, "fig": 0.1, "plum": 9.0}, 2.0, 5) == ["b", "a", "c"]
    assert engine.words({"apple": 1.0}, 2.0, 1) == ["b"]
    assert engine.words({"apple": 1.0}, 2.0, 5, {"n": {"$exists": False}}) == ["a"]
    assert engine.words({"plum": 1.0}, 2.0, 5) == []
    assert engine.words({}, 2.0, 5) == []


def test_the_same_again_changes_nothing_and_what_goes_leaves_nothing(engine):
    names = ["x", "y"]
    parts = [passage("x#1", "x", words="one two"), passage("x#2", "x", words="two", axis=1)]
    engine.put([*parts, passage("y", words="three", axis=2)])
    before = contents(engine, names)
    engine.put([passage("y", words="three", axis=2)])
    engine.put(parts)
    assert contents(engine, names) == before
    engine.put([passage("x", words="four", axis=3)])
    assert engine.parts(["x"]) == {"x": ["x"]}
    assert set(engine.search(axis(1), 5)[0]) == {"x", "y"}
    engine.put(parts)
    assert contents(engine, names) == before
    engine.delete(["x", "z", "a\0b"])
    engine.delete(["x"])
    engine.delete(["y"])
    engine.settle()
    assert contents(engine, names) == ({}, [], {}, (0, 0.0, {}), 0)
    assert engine.search(axis(0), 5) == [[]]


@pytest.mark.parametrize(
    "refused",
    [[passage("y", words="two"), passage("x", "z", words="three")], [passage("y", words="two"), passage("y", words="two")]],
    ids=["another's", "twice"],
)
def test_an_id_that_is_taken_is_refused_before_anything_is_written(engine, refused):
    engine.put([passage("x", words="one")])
    before = contents(engine, ["x", "y", "z"])
    with pytest.raises(RetrievalError, match="passage of another document"):
        engine.put(refused)
    assert contents(engine, ["x", "y", "z"]) == before


def test_a_load_stores_what_put_stores_and_goes_on_after_it_was_cut_short(engine, anywhere):
    batches = [[passage(f"p{n}", words=f"w{n} one", axis=n % 8) for n in range(start, start + 20)] for start in (0, 20, 40)]
    with pytest.raises(KeyboardInterrupt), engine.loading():
        engine.put(batches[0])
        raise KeyboardInterrupt
    other = open_engine(anywhere)
    other.open(DIMENSION, "test")
    assert other.count() == 20
    assert len(other.search(axis(0), 5)[0]) == 5
    with other.loading():
        for batch in [*batches[1:], []]:
            other.put(batch)
    other.settle()
    copy = open_engine(anywhere, collection="copied_" + str(next(_NUMBERS)))
    copy.open(DIMENSION, "test", create=True)
    for batch in batches:
        copy.put(batch)
    names = [f"p{n}" for n in range(60)]
    assert contents(copy, names) == contents(other, names)
    other.close()
    copy.close()


def test_another_encoder_or_dimension_is_refused(engine, anywhere):
    other = open_engine(anywhere)
    with pytest.raises(RetrievalError, match="was encoded by 'test' in vectors of length 8, and the encoder given is 'else'"):
        other.open(DIMENSION, "else", create=True)
    with pytest.raises(RetrievalError, match="with vectors of length 9"):
        other.open(9, "test", create=True)
    other.close()


def test_a_pickled_engine_works_by_itself(engine):
    engine.put([passage("x")])
    copy = pickle.loads(pickle.dumps(engine))
    assert copy.search(axis(0), 1) == [["x"]]
    copy.close()
    assert engine.search(axis(0), 1) == [["x"]]


def test_a_collection_that_is_not_there_is_said(anywhere):
    engine = open_engine(anywhere)
    with pytest.raises(RetrievalError, match="is not there; add documents"):
        engine.open(DIMENSION, "test")
    assert engine.count() == 0
    engine.close()


def test_a_retriever_over_it_finds_adds_updates_and_deletes(anywhere):
    texts = {"hopfield": "Hopfield networks store patterns", "bm25": "BM25 counts words", "ada": "Ada wrote the first program"}
    documents = [Document(text, id=name, metadata={"size": len(text)}) for name, text in texts.items()]
    retriever = HopfieldRetriever.from_engine(anywhere, encoder=WordEncoder())
    assert retriever.add_documents(documents) == [*texts]
    whole = HopfieldRetriever.from_documents(documents, encoder=WordEncoder())
    for question in ("who wrote programs", "patterns of networks", "words"):
        found, expected = retriever.invoke(question), whole.invoke(question)
        assert found[0].id == expected[0].id
        assert {one.id: one.metadata["score"] for one in found} == pytest.approx(
            {one.id: one.metadata["score"] for one in expected}, abs=1e-6
        )
    small = {"size": {"$lt": 20}}
    assert [document.id for document in retriever.invoke("networks", filter=small)] == ["bm25"]
    retriever.update([Document("Nothing but zebras", id="ada")])
    assert retriever.invoke("zebras")[0].page_content == "Nothing but zebras"
    retriever.delete(["hopfield"])
    assert {document.id for document in retriever.invoke("networks")} == {"bm25", "ada"}


_HOSTILE = st.sampled_from(
    ["theirs", "' OR 1=1 --", "%", "_", "secret", "default' --", "\\", "a\0b", '"', '" or tenant != "', "*", "{passages}"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@pytest.mark.slow
def test_nothing_of_another_tenant_in_a_thousand_tries(anywhere):
    theirs = open_engine(anywhere, tenant="theirs")
    theirs.open(DIMENSION, "test", create=True)
    theirs.put([passage(f"s{n}#1", f"s{n}", words="secret apple", owner="theirs", year=n) for n in range(20)])
    names = [f"s{n}" for n in range(20)]
    before = contents(theirs, names)
    tries = 0

    @settings(max_examples=70, suppress_health_check=list(HealthCheck))
    @given(tenant=_HOSTILE, name=_HOSTILE, value=_HOSTILE, ids=st.lists(_HOSTILE, max_size=3))
    def attempt(tenant: str, name: str, value: str, ids: list[str]) -> None:
        nonlocal tries
        exact = "&exact=0" if len(ids) % 2 and anywhere.startswith("postgresql") else ""
        try:
            mine = open_engine(anywhere + exact, tenant="mine" if tenant == "theirs" else tenant)
        except InputError:
            mine = open_engine(anywhere + exact, tenant="mine")
        mine.open(DIMENSION, "test")
        for condition in (None, {name: value}, {"$or": [{name: {"$ne": value}}, {"owner": "theirs"}]}, {"year": {"$gte": 0}}):
            try:
                assert mine.search(axis(0), 10, condition) == [[]]
                assert mine.words({"secret": 1.0, value: 1.0}, 2.0, 10, condition) == []
            except InputError:
                pass
            tries += 2
        named = [*ids, "s1", "s1#1", value]
        mine.delete(named)
        assert (mine.patterns(named), mine.parts(named), mine.digests(named)) == ([], {}, {})
        found = mine.statistics(["secret", value])
        assert (found.passages, dict(found.frequencies), mine.count()) == (0, {}, 0)
        tries += 7
        mine.close()

    attempt()
    assert tries >= 1_000
    assert contents(theirs, names) == before
    # Ids are a tenant's own.
    mine = open_engine(anywhere, tenant="mine")
    mine.open(DIMENSION, "test")
    mine.put([passage("s1#1", "s1", words="plain")])
    mine.delete(["s1"])
    assert contents(theirs, names) == before
    mine.close()
    theirs.close()
