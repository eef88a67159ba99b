import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.memory import Memory, build_memory
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

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


@pytest.mark.parametrize(("passages", "spans"), [(1, 3), (3, 3), (2, 2), (2, 4)])
def test_parts_that_do_not_fit_together_are_refused(passages, spans):
    patterns = Patterns(np.eye(5, dtype=np.float32), np.array([0, 2, 5]))
    Memory([Document("a")] * 2, patterns, np.zeros((3, 2), dtype=np.int64))
    with pytest.raises(RetrievalError, match="does not fit together"):
        Memory([Document("a")] * passages, patterns, np.zeros((spans, 2), dtype=np.int64))


def test_patterns_are_stored_as_asked_for(encoder):
    memory = build_memory([Document(LONG)], encoder, dtype="int8")
    assert memory.patterns.values.dtype == np.int8
    assert memory.patterns.scales.shape == (3,)
    with pytest.raises(InputError, match="float64"):
        build_memory([Document(LONG)], encoder, dtype="float64")
