import numpy as np
import pytest

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import normalised


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
