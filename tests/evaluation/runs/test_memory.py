"""What a run holds in memory: with four times as many questions hardly more, and far less than 2 GB.

`python -m tests.evaluation.runs.memory 10000 closed-book,history-aware-rag` is the whole of it, in minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FEW, MANY = 200, 800
MOST_GB, MOST_GROWTH = 1.0, 0.05


def measured(questions: int, methods: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.evaluation.runs.memory", str(questions), methods]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=280)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_does_not_grow_with_the_questions() -> None:
    few, many = (measured(questions, "closed-book,history-aware-rag") for questions in (FEW, MANY))
    assert [(found["answered"], found["failed"]) for found in (few, many)] == [(2 * FEW, 0), (2 * MANY, 0)]
    assert many["gb"] < MOST_GB
    assert many["gb"] - few["gb"] < MOST_GROWTH
