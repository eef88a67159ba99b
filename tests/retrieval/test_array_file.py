import mmap

import numpy as np
import pytest

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.array_file import read_arrays, write_arrays

ARRAYS = {
    "a": np.arange(6, dtype=np.int64).reshape(2, 3),
    "empty": np.zeros((0, 4), dtype=np.float32),
    "b": np.arange(3, dtype=np.uint8),
}


def test_arrays_and_settings_come_back_as_maps(tmp_path):
    path = tmp_path / "file"
    write_arrays(path, ARRAYS, kind="test", version=3, settings={"x": [1, "é"]})
    arrays, settings = read_arrays(path, kind="test", version=3)
    assert settings == {"x": [1, "é"]}
    assert arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], values)
        assert arrays[name].dtype == values.dtype
    memory = arrays["a"]
    while isinstance(memory, np.ndarray):
        memory = memory.base
    assert isinstance(memory, mmap.mmap)
    with pytest.raises(ValueError, match="read-only"):
        arrays["a"][0, 0] = 1


def test_what_is_no_such_file(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(RetrievalError, match="There is no file"):
        read_arrays(path, kind="test", version=1)
    path.write_bytes(b"hello")
    with pytest.raises(RetrievalError, match="damaged or cut off"):
        read_arrays(path, kind="test", version=1)
    write_arrays(path, ARRAYS, kind="other", version=1)
    with pytest.raises(RetrievalError, match="is no test file"):
        read_arrays(path, kind="test", version=1)
    with pytest.raises(RetrievalError, match="version 1, not 2"):
        read_arrays(path, kind="other", version=2)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RetrievalError, match="cannot be written"):
        write_arrays(tmp_path / "file" / "below", ARRAYS, kind="test", version=1)


def test_whoever_may_read_other_new_files_may_read_these(tmp_path):
    (tmp_path / "other").touch()
    write_arrays(tmp_path / "file", ARRAYS, kind="test", version=1)
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode
