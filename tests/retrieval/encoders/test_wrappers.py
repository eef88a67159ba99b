import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from langgraph_convcoa.retrieval.encoders.base import RecentEncoder, RecentValues
from tests.bounds import SECONDS


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
