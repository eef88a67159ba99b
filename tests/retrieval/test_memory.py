import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.cache import PatternCache
from langgraph_convcoa.retrieval.memory import Memory, build_memory

LONG = "Apples grow on trees. Pears fall down. Plums rot fast. Figs are sweet."


def test_a_passage_is_one_pattern_and_a_set_of_windows(encoder):
    memory = build_memory([Document(LONG, id="a", metadata={"title": "Fruit"}), Document("One.", id="b")], encoder)
    assert len(memory) == 2
    assert memory.dimension == 4096
    assert memory.offsets.tolist() == [0, 2, 3]
    assert [LONG[start:end] for start, end in memory.set_spans(0)] == [
        "Apples grow on trees. Pears fall down. Plums rot fast.",
        "Plums rot fast. Figs are sweet.",
    ]
    np.testing.assert_allclose(memory.whole, encoder.encode_queries([f"Fruit\n{LONG}", "One."]), rtol=1e-6)
    np.testing.assert_allclose(
        memory.windows[1:], encoder.encode_queries(["Plums rot fast. Figs are sweet.", "One."]), rtol=1e-6
    )


def test_titles_go_with_the_whole_and_not_with_the_windows(encoder):
    build_memory([Document(LONG, metadata={"title": "Fruit"})], encoder)
    assert sum("Fruit" in text for text in encoder.passages) == 1


def test_the_cache_gives_the_same_memory(tmp_path, encoder):
    cache = PatternCache(tmp_path / "c.sqlite")
    first = build_memory([Document(LONG)], encoder, cache=cache)
    encoder.passages.clear()
    again = build_memory([Document(LONG)], encoder, cache=cache)
    assert encoder.passages == []
    np.testing.assert_array_equal(first.windows, again.windows)


@pytest.mark.parametrize(("offsets", "windows"), [([0, 1], 2), ([0, 1, 1], 1), ([0, 1, 2], 3), ([0, 1, 3], 2)])
def test_parts_that_do_not_fit_together_are_refused(offsets, windows):
    with pytest.raises(RetrievalError, match="does not fit together"):
        Memory(
            [Document("a"), Document("b")],
            np.eye(2, dtype=np.float32),
            np.zeros((windows, 2), dtype=np.float32),
            np.array(offsets),
            np.zeros((windows, 2), dtype=np.int64),
        )
