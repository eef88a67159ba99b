"""The memory that a search of an index takes; `python -m tests.retrieval.index.size FOLDER` prints the seconds too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the memory's peak where Linux shows it")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("dtype", "count"), [("float32", 100_000), ("int8", 100_000), ("int8", 400_000)])
def test_a_search_takes_hardly_more_memory_than_the_patterns(tmp_path, dtype, count):
    done = subprocess.run(
        [sys.executable, "-m", "tests.retrieval.index.size", str(tmp_path / "index"), dtype, str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["peak_over_before_megabytes"] <= report["file_megabytes"] + 150
    assert report["file_over_raw"] <= 1.05
