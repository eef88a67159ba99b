import numpy as np
import pytest

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.patterns import PATTERN_TYPES, Patterns, dot, encode_patterns, rounded
from langgraph_convcoa.retrieval.search import top_k

ROUNDING = {"float32": 0, "int8": 1 / 254}


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_what_is_stored_is_near_what_was_given(dtype, size):
    rows = (size * np.random.default_rng(0).standard_normal((50, 33))).astype(np.float32)
    values, scales = encode_patterns(rows, dtype)
    decoded = Patterns(values, np.array([0, 50]), scales, dtype).rows(0, 50)
    assert decoded.dtype == np.float32
    # Relative to the largest entry of the row.
    assert (np.abs(decoded - rows) <= ROUNDING[dtype] * np.abs(rows).max(axis=1, keepdims=True) * 1.001).all()


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
def test_rows_of_zeros_stay_zeros(dtype):
    values, scales = encode_patterns(np.zeros((2, 3), dtype=np.float32), dtype)
    assert (Patterns(values, np.array([0, 2]), scales, dtype).rows(0, 2) == 0).all()


@pytest.mark.parametrize("dtype", PATTERN_TYPES)
def test_a_read_only_map_is_read_as_it_is(dtype, tmp_path):
    rows = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    values, scales = encode_patterns(rows, dtype)
    values.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", dtype=values.dtype, mode="r", shape=values.shape)
    patterns = Patterns(mapped, np.array([0, 2, 6]), scales, dtype)
    assert patterns.values.ctypes.data == mapped.ctypes.data
    np.testing.assert_array_equal(values * (1 if scales is None else scales[:, None]), patterns.rows(0, 6))
    assert len(top_k(patterns, patterns.rows(0, 2), k=1)) == 2
    np.testing.assert_array_equal(patterns.take(np.array([5, 0])), patterns.rows(0, 6)[[5, 0]])
    lengths = np.linalg.norm(patterns.rows(0, 6), axis=1)
    np.testing.assert_allclose(patterns.reach, [lengths[[0, 2]], [lengths[1], lengths[3:].max()]], rtol=1e-6)


@pytest.mark.parametrize("offsets", [[], [0], [0, 4], [1, 5], [0, 1, 5], [0, 5, 5], [0, 6, 5], [[0, 5]]])
def test_offsets_that_do_not_fit_are_refused(offsets):
    with pytest.raises(RetrievalError, match="do not fit together"):
        Patterns(np.zeros((5, 3), dtype=np.float32), np.array(offsets, dtype=np.int64))


@pytest.mark.parametrize(
    ("values", "scales", "dtype", "message"),
    [
        (np.zeros((2, 3)), None, "float32", "float64"),
        (np.zeros((3, 2), dtype=np.float32).T, None, "float32", "contiguous"),
        (np.zeros((2, 3), dtype=np.float32), None, "int8", "int8"),
        (np.zeros((2, 3), dtype=np.int8), None, "int8", "fit together"),
        (np.zeros((2, 3), dtype=np.int8), np.ones(3, dtype=np.float32), "int8", "fit together"),
        (np.zeros((2, 3), dtype=np.float32), np.ones(2, dtype=np.float32), "float32", "fit together"),
        (np.zeros((2, 3), dtype=np.float32), None, "float64", "float64"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, scales, dtype, message):
    with pytest.raises(RetrievalError, match=message):
        Patterns(values, np.array([0, 2]), scales, dtype)


def test_vectors_that_cannot_be_stored_are_refused():
    with pytest.raises(InputError, match="float64"):
        encode_patterns(np.zeros((1, 1), dtype=np.float32), "float64")
    with pytest.raises(RetrievalError, match="NaN"):
        encode_patterns(np.array([[np.nan]], dtype=np.float32), "int8")
    with pytest.raises(RetrievalError, match="matrix"):
        encode_patterns(np.zeros(3, dtype=np.float32), "float32")
    for gone in ("float16", "bfloat16"):
        with pytest.raises(InputError, match="use one of float32, int8"):
            encode_patterns(np.zeros((1, 1), dtype=np.float32), gone)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize(("m", "d"), [(1, 1), (5, 3), (100, 384), (33, 1025)])
def test_products_are_exact_whole_numbers(count, m, d):
    queries, _, _ = rounded(np.random.default_rng(1).standard_normal((count, d)).astype(np.float32))
    values = np.random.default_rng(0).integers(-127, 128, (m, d)).astype(np.int8)
    values.flags.writeable = False
    for kind in (np.int32, np.float32)[: 1 + (count == 1)]:
        found = dot(values, queries, np.empty((m, count), dtype=kind))
        np.testing.assert_array_equal(found, values.astype(np.int64) @ queries.T.astype(np.int64))


def test_products_do_not_overflow():
    queries, _, _ = rounded(np.ones((2, 5000), dtype=np.float32))
    found = dot(np.full((1, 5000), 127, dtype=np.int8), queries, np.empty((1, 2), dtype=np.int32))
    assert found.tolist() == [[127 * 127 * 5000] * 2]
