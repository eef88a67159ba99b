import numpy as np
import pytest

from langgraph_convcoa.retrieval.scoring.int8 import IntegerQueries, dot


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize(("m", "d"), [(1, 1), (5, 3), (100, 384), (33, 1025)])
def test_products_are_exact_whole_numbers(count, m, d):
    queries = IntegerQueries.of(np.random.default_rng(1).standard_normal((count, d)).astype(np.float32))
    values = np.random.default_rng(0).integers(-127, 128, (m, d)).astype(np.int8)
    values.flags.writeable = False
    for kind in (np.int32, np.float32)[: 1 + (count == 1)]:
        found = dot(values, queries.rows, np.empty((m, count), dtype=kind))
        np.testing.assert_array_equal(found, values.astype(np.int64) @ queries.rows.T.astype(np.int64))


def test_products_do_not_overflow():
    queries = IntegerQueries.of(np.ones((2, 5000), dtype=np.float32))
    found = dot(np.full((1, 5000), 127, dtype=np.int8), queries.rows, np.empty((1, 2), dtype=np.int32))
    assert found.tolist() == [[127 * 127 * 5000] * 2]
