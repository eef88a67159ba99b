import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.changes import entries_of
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from tests.retrieval.conftest import put

LONG = "Apples grow on trees. Pears fall down. Plums rot fast. Figs are sweet."


def test_a_passage_is_one_pattern_and_a_set_of_windows(encoder):
    memory = build_memory([Document(LONG, id="a", metadata={"title": "Fruit"}), Document("One.", id="b")], encoder)
    assert len(memory) == 2
    assert memory.patterns.d == 4096
    assert memory.patterns.offsets.tolist() == [0, 3, 5]
    assert [LONG[start:end] for start, end in memory.spans[0]] == [
        "Apples grow on trees. Pears fall down. Plums rot fast.",
        "Plums rot fast. Figs are sweet.",
    ]
    assert memory.spans[1] == [(0, 4)]
    expected = encoder.encode_queries([f"Fruit\n{LONG}", "Apples grow on trees. Pears fall down. Plums rot fast."])
    np.testing.assert_allclose(memory.patterns.rows(0, 2), expected, rtol=1e-6)
    expected = encoder.encode_queries(["Plums rot fast. Figs are sweet.", "One.", "One."])
    np.testing.assert_allclose(memory.patterns.rows(2, 5), expected, rtol=1e-6)


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
    assert one.spans == other.spans
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


def part(name, number, of=None):
    return Document("text", id=f"{name}#{number}", metadata={"document_id": of or name})


def test_passages_are_grouped_by_the_parts_of_a_document():
    passages = [part("a", 1), part("a", 2), part("b", 1), Document("whole", id="c"), part("a", 3), part("c", 2)]
    groups = [(entry.id, [passage.id for passage in entry.passages]) for entry in entries_of(passages)]
    # A part that does not follow on the one before it is a document of its own.
    assert groups == [("a", ["a#1", "a#2"]), ("b", ["b#1"]), ("c", ["c"]), ("a#3", ["a#3"]), ("c#2", ["c#2"])]
    assert list(entries_of([])) == []
