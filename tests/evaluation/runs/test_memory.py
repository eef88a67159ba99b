"""What a run holds in memory: with four times as many questions hardly more, and far less than 2 GB.

`python -m tests.evaluation.runs.memory 10000 closed-book,history-aware-rag` is the whole of it, in minutes.
"""

from __future__ import annotations

import json

import pytest

from tests.bounds import run_python

FEW, MANY = 200, 800
MOST_GB, MOST_GROWTH = 1.0, 0.05


@pytest.mark.slow
def test_memory_does_not_grow_with_the_questions() -> None:
    command = ("-m", "tests.evaluation.runs.memory")
    few, many = (json.loads(run_python(*command, n, "closed-book,history-aware-rag").stdout) for n in (FEW, MANY))
    assert [(found["answered"], found["failed"]) for found in (few, many)] == [(2 * FEW, 0), (2 * MANY, 0)]
    assert many["gb"] < MOST_GB
    assert many["gb"] - few["gb"] < MOST_GROWTH
