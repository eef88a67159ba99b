import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.memory import EMPTY, build_memory
from langgraph_convcoa.retrieval.memory_changes import with_documents, without

TEXT = "Apples grow on trees. Pears fall down. Plums rot fast. Figs are sweet."


def documents(*numbers):
    return [Document(f"{TEXT} It is number {i}.", id=f"d{i}") for i in numbers]


def same(one, other):
    assert one.passages == other.passages
    np.testing.assert_array_equal(one.patterns.values, other.patterns.values)
    np.testing.assert_array_equal(one.patterns.offsets, other.patterns.offsets)
    np.testing.assert_array_equal(one.spans, other.spans)
    if one.patterns.scales is not None:
        np.testing.assert_array_equal(one.patterns.scales, other.patterns.scales)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_changes_give_what_building_anew_gives(encoder, dtype):
    book = Document("word " * 200, id="book")
    memory = build_memory([*documents(0, 1), book], encoder, dtype=dtype)
    more, ids = with_documents(memory, documents(2, 3), encoder, replace=False)
    assert ids == ["d2", "d3"]
    same(more, build_memory([*documents(0, 1), book, *documents(2, 3)], encoder, dtype=dtype))
    same(without(more, ["book", "d2"]), build_memory(documents(0, 1, 3), encoder, dtype=dtype))
    changed, _ = with_documents(more, [Document("Short.", id="book")], encoder, replace=True)
    same(changed, build_memory([*documents(0, 1, 2, 3), Document("Short.", id="book")], encoder, dtype=dtype))
    assert len(memory) == 2 + sum(str(passage.id).startswith("book#") for passage in memory.passages)


def test_what_is_there_already_is_not_encoded(encoder):
    memory = build_memory(documents(0, 1), encoder)
    encoder.passages.clear()
    again, ids = with_documents(memory, documents(1, 0), encoder, replace=True)
    assert again is memory
    assert ids == ["d1", "d0"]
    assert encoder.passages == []


def test_from_nothing(encoder):
    memory, _ = with_documents(EMPTY, documents(0), encoder, replace=False)
    same(memory, build_memory(documents(0), encoder))
    assert len(without(memory, "d0")) == 0
    again, _ = with_documents(without(memory, ["d0"]), documents(1), encoder, replace=False)
    same(again, build_memory(documents(1), encoder))


def test_what_cannot_be_done_is_told(encoder):
    memory = build_memory([*documents(0), Document("word " * 200, id="book")], encoder)
    with pytest.raises(InputError, match="no document 'x'"):
        without(memory, ["d0", "x"])
    with pytest.raises(RetrievalError, match="'d0' is there already with another content"):
        with_documents(memory, [Document("Other.", id="d0")], encoder, replace=False)
    with pytest.raises(RetrievalError, match="is that of a passage of 'book'"):
        with_documents(memory, [Document("Other.", id="book#1")], encoder, replace=False)
    with pytest.raises(RetrievalError, match="delete it instead"):
        with_documents(memory, [Document("", id="d0")], encoder, replace=True)
