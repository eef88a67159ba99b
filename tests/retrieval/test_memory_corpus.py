import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from tests.retrieval.conftest import put

LONG = "Apples grow on trees. Pears fall down. Plums rot fast. Figs are sweet."


def test_a_passage_is_one_pattern_and_a_set_of_windows(encoder):
    memory = build_memory([Document(LONG, id="a", metadata={"title": "Fruit"}), Document("One.", id="b")], encoder)
    assert len(memory) == 2
    assert memory.dimension == 4096
    assert memory.patterns.offsets.tolist() == [0, 3, 5]
    assert [LONG[start:end] for start, end in memory.set_spans(0)] == [
        "Apples grow on trees. Pears fall down. Plums rot fast.",
        "Plums rot fast. Figs are sweet.",
    ]
    assert memory.set_spans(1) == [(0, 4)]
    expected = encoder.encode_queries([f"Fruit\n{LONG}", "Apples grow on trees. Pears fall down. Plums rot fast."])
    np.testing.assert_allclose(memory.patterns.rows(0, 2), expected, rtol=1e-6)
    expected = encoder.encode_queries(["Plums rot fast. Figs are sweet.", "One.", "One."])
    np.testing.assert_allclose(memory.patterns.rows(2, 5), expected, rtol=1e-6)


def test_titles_go_with_the_whole_and_not_with_the_windows(encoder):
    build_memory([Document(LONG, metadata={"title": "Fruit"})], encoder)
    assert sum("Fruit" in text for text in encoder.passages) == 1


def test_the_cache_gives_the_same_memory(tmp_path, encoder):
    cache = PatternCache(tmp_path / "c.sqlite")
    first = build_memory([Document(LONG)], encoder, cache=cache)
    encoder.passages.clear()
    again = build_memory([Document(LONG)], encoder, cache=cache)
    assert encoder.passages == []
    np.testing.assert_array_equal(first.patterns.values, again.patterns.values)


def test_patterns_are_stored_as_asked_for(encoder):
    memory = build_memory([Document(LONG)], encoder, dtype="int8")
    assert memory.patterns.values.dtype == np.int8
    assert memory.patterns.scales.shape == (3,)
    with pytest.raises(InputError, match="float64"):
        build_memory([Document(LONG)], encoder, dtype="float64")


def numbered(*numbers):
    return [Document(f"{LONG} It is number {i}.", id=f"d{i}") for i in numbers]


def same(corpus, other):
    one = corpus.snapshot()
    assert one.passages == other.passages
    np.testing.assert_array_equal(one.patterns.values, other.patterns.values)
    np.testing.assert_array_equal(one.patterns.offsets, other.patterns.offsets)
    np.testing.assert_array_equal(one.spans, other.spans)
    if one.patterns.scales is not None:
        np.testing.assert_array_equal(one.patterns.scales, other.patterns.scales)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_changes_give_what_building_anew_gives(encoder, dtype):
    book = Document("word " * 200, id="book")
    corpus = MemoryCorpus(build_memory([*numbered(0, 1), book], encoder, dtype=dtype))
    before = corpus.snapshot()
    assert put(corpus, numbered(2, 3), encoder) == ["d2", "d3"]
    same(corpus, build_memory([*numbered(0, 1), book, *numbered(2, 3)], encoder, dtype=dtype))
    put(corpus, [Document("Short.", id="book")], encoder, replace=True)
    same(corpus, build_memory([*numbered(0, 1, 2, 3), Document("Short.", id="book")], encoder, dtype=dtype))
    corpus.delete(["book", "d2"])
    same(corpus, build_memory(numbered(0, 1, 3), encoder, dtype=dtype))
    assert len(before) == 2 + sum(str(passage.id).startswith("book#") for passage in before.passages)


def test_a_key_is_a_passages_own_and_is_not_given_again(encoder):
    corpus = MemoryCorpus(build_memory(numbered(0, 1, 2), encoder))
    first = corpus.snapshot()
    assert first.keys.tolist() == [0, 1, 2]
    corpus.delete(["d0", "d2"])
    assert corpus.snapshot().keys.tolist() == [1]
    put(corpus, numbered(2), encoder)
    put(corpus, [Document("Other.", id="d1")], encoder, replace=True)
    assert corpus.snapshot().keys.tolist() == [3, 4]
    assert corpus.snapshot().source == first.source != build_memory(numbered(0), encoder).source


def test_what_is_there_already_is_not_encoded(encoder):
    corpus = MemoryCorpus(build_memory(numbered(0, 1), encoder))
    memory = corpus.snapshot()
    encoder.passages.clear()
    assert put(corpus, numbered(1, 0), encoder, replace=True) == ["d1", "d0"]
    assert corpus.snapshot() is memory
    assert encoder.passages == []


def test_from_nothing(encoder):
    corpus = MemoryCorpus()
    put(corpus, numbered(0), encoder)
    same(corpus, build_memory(numbered(0), encoder))
    corpus.delete("d0")
    assert len(corpus) == 0
    put(corpus, numbered(1), encoder)
    same(corpus, build_memory(numbered(1), encoder))


def test_what_cannot_be_done_is_told(encoder):
    corpus = MemoryCorpus(build_memory([*numbered(0), Document("word " * 200, id="book")], encoder))
    memory = corpus.snapshot()
    assert corpus.delete(["x"]) == []
    with pytest.raises(InputError, match="'book#1' is a passage of 'book', which can only be deleted as a whole"):
        corpus.delete(["d0", "book#1"])
    with pytest.raises(InputError, match="must be a list of texts, not int"):
        corpus.delete(3)
    with pytest.raises(RetrievalError, match="'d0' is there already with another content"):
        put(corpus, [Document("Other.", id="d0")], encoder)
    with pytest.raises(RetrievalError, match="is that of a passage of 'book'"):
        put(corpus, [Document("Other.", id="book#1")], encoder)
    with pytest.raises(RetrievalError, match="delete it instead"):
        put(corpus, [Document("", id="d0")], encoder, replace=True)
    assert corpus.snapshot() is memory
