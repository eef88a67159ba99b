from __future__ import annotations

import numpy as np

from langgraph_convcoa.memory.conversation_memory import TextVectors
from tests.fake_encoder import CountingEncoder


def test_only_what_is_new_is_encoded_and_in_one_batch() -> None:
    encoder = CountingEncoder()
    vectors = TextVectors(encoder)
    first = vectors(["ants", "bees", "ants"])
    second = vectors(["bees", "crabs", "ants"])
    assert encoder.asked == [["ants", "bees"], ["crabs"]]
    assert np.array_equal(first[[1, 0]], second[[0, 2]])


def test_the_oldest_vectors_are_given_up() -> None:
    encoder = CountingEncoder()
    vectors = TextVectors(encoder, capacity=2)
    vectors(["a1", "b1"])
    vectors(["b1", "c1"])
    vectors(["a1", "c1"])
    assert encoder.asked == [["a1", "b1"], ["c1"], ["a1"]]


def test_an_encoder_that_fails_leaves_the_words_and_one_measure_for_all() -> None:
    encoder = CountingEncoder()
    vectors = TextVectors(lambda: encoder)
    assert vectors(["the ants"]).shape == (1, 512)
    encoder.broken = True
    rows = vectors(["the ants", "ants here", "bees"])
    assert vectors.lexical
    assert rows.shape == (3, 1024)
    assert rows[0] @ rows[1] > 0.99
    assert rows[0] @ rows[2] < 0.01


def test_no_encoder_and_no_text() -> None:
    vectors = TextVectors()
    assert vectors.lexical
    assert len(vectors([])) == 0
    assert np.allclose(np.linalg.norm(vectors(["of the", "?!"]), axis=1), [1, 0])
