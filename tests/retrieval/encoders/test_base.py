from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import RecentEncoder, RecentValues, cores, normalised
from tests.bounds import SECONDS


def test_rows_get_length_one_and_zero_stays_zero():
    rows = normalised([[3, 4], [0, 0]], 2, 2, "e")
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 0]], rtol=1e-6)


def test_the_callers_array_is_left_alone():
    given = np.array([[3, 4]], dtype=np.float32)
    normalised(given, 1, 2, "e")
    assert given.tolist() == [[3, 4]]


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0, 3.0]], "shape"),
        ([[1.0, 2.0]] * 2, "shape"),
        ([1.0, 2.0], "shape"),
        ([[float("nan"), 1.0]], "NaN"),
        ([[float("inf"), 1.0]], "NaN or infinity"),
        ([["a", "b"]], "numbers"),
        ([[1.0, 2.0], [1.0]], "one length"),
    ],
)
def test_unusable_vectors_are_an_error_of_one_line(vectors, message):
    with pytest.raises(RetrievalError, match=message) as caught:
        normalised(vectors, 1, 2, "my-encoder")
    assert "my-encoder" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_rows_beyond_the_squares_of_float32_get_length_one(size):
    np.testing.assert_allclose(normalised([[3 * size, 4 * size]], 1, 2, "e"), [[0.6, 0.8]], rtol=1e-6)


def test_what_is_kept_is_not_encoded_again(encoder):
    recent = RecentEncoder(encoder, 3)
    first = recent.encode_passages(["a cat", "a dog", "a cat"])
    assert encoder.passages == ["a cat", "a dog"]
    again = recent.encode_passages(["a dog", "an owl", "a cat"])
    assert encoder.passages == ["a cat", "a dog", "an owl"]
    np.testing.assert_array_equal(again[[2, 0]], first[:2])
    np.testing.assert_array_equal(again, encoder.encode_passages(["a dog", "an owl", "a cat"]))


def test_more_than_is_kept_still_comes_back(encoder):
    recent = RecentEncoder(encoder, 1)
    texts = ["a cat", "a dog", "an owl"]
    np.testing.assert_array_equal(recent.encode_passages(texts), encoder.encode_passages(texts))
    assert recent.count_tokens_batch(texts) == encoder.count_tokens_batch(texts)


def test_the_rest_is_the_other_encoders(encoder):
    recent = RecentEncoder(encoder, 9)
    assert (recent.name, recent.dimension, recent.max_tokens) == (encoder.name, encoder.dimension, encoder.max_tokens)
    assert recent.count_tokens("one two") == 4
    assert recent.encode_passages([]).shape == (0, 4096)
    np.testing.assert_array_equal(recent.encode_queries(["a cat"]), encoder.encode_queries(["a cat"]))


def test_threads_that_want_the_same_value_make_it_once():
    recent, made, begun = RecentValues[str, int](10), [], threading.Barrier(4)

    def make(new):
        made.extend(new)
        time.sleep(0.05)
        return [len(text) for text in new]

    def want(own):
        begun.wait(SECONDS)
        return recent.of(["shared", own, "also shared"], make)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(want, ["a", "bb", "ccc", "dddd"], timeout=SECONDS))
    assert [one["shared"] + one["also shared"] for one in found] == [17] * 4
    assert sorted(made) == ["a", "also shared", "bb", "ccc", "dddd", "shared"]


def test_a_search_leaves_the_matrix_library_of_its_process_alone(monkeypatch):
    from threadpoolctl import threadpool_info

    from langgraph_convcoa.retrieval import search
    from langgraph_convcoa.retrieval.patterns import Patterns

    monkeypatch.setattr(search, "_WORTH_THREADS", 0)
    seen: list[object] = []
    plain = search.upper_bounds

    def watched(*arguments):
        seen.append(threadpool_info())
        return plain(*arguments)

    monkeypatch.setattr(search, "upper_bounds", watched)
    before = threadpool_info()
    search.top_k(Patterns(np.eye(4, dtype=np.float32), np.array([0, 2, 4])), np.ones((1, 4), dtype=np.float32), k=1)
    assert seen == [before]


@pytest.mark.parametrize(("told", "number"), [("3", 3), ("1", 1), ("0", None), ("many", None), ("", None)])
def test_as_many_threads_as_torch_would_take(monkeypatch, told, number):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = cores()
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert cores() == (number or every)
