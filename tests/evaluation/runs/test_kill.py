"""A run that is killed at any point ends with the same report as one that is not, and pays for no reply twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.runs.process import CONVERSATIONS, METHODS, TURNS, run, script, write_data
from tests.openai_server import OpenAIServer, Reply, prompt_of

WAIT_SECONDS = 120
KILLS = 5
CONCURRENCY = 3


def without_times(value: Any) -> Any:
    """A report without what it says of seconds."""
    if isinstance(value, dict):
        return {name: without_times(entry) for name, entry in value.items() if name != "seconds"}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value


class Runs:
    """Starts runs in processes of their own."""

    def __init__(self, data: Path, base_url: str) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.evaluation.runs.process", "langchain_openai"])
        self.data, self.base_url = data, base_url

    def start(self, out: Path, kill_after: float | None) -> bool:
        """Run; whether it came to its end."""
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=run, args=(str(self.data), str(out), self.base_url, "test", sender), daemon=True)
        process.start()
        sender.close()
        if kill_after is None:
            process.join(WAIT_SECONDS)
            assert process.exitcode == 0
            return True
        assert receiver.poll(WAIT_SECONDS)
        try:
            assert receiver.recv() == "begin"
        except EOFError:
            pytest.fail("the run ended before it asked")
        time.sleep(kill_after)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(WAIT_SECONDS)
        return process.exitcode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_runs_end_with_the_same_report_and_pay_for_no_reply_twice(tmp_path: Path) -> None:
    chance = random.Random(7)
    data = write_data(tmp_path / "things")
    came: dict[str, list[float]] = {}

    def judged(body: dict[str, Any]) -> Reply:
        return Reply("1", delay=0.02) if "[Output]" in prompt_of(body) else script(body)

    def timed(body: dict[str, Any]) -> Reply:
        reply = judged(body)
        if reply.status == 200:
            came.setdefault(json.dumps(body, sort_keys=True), []).append(time.monotonic() + reply.delay)
        return reply

    with OpenAIServer(timed) as server:
        runs = Runs(data, server.base_url)
        runs.start(tmp_path / "whole", None)
        once = Counter({body: len(times) for body, times in came.items()})
        came.clear()
        kills = []
        for _ in range(KILLS):
            if runs.start(tmp_path / "killed", chance.uniform(0.1, 0.9)):
                break
            kills.append(time.monotonic())
        assert len(kills) >= 3, "the run was over too soon to be killed"
        runs.start(tmp_path / "killed", None)
        asked = len(server.requests)
        first = (tmp_path / "killed" / "report.json").read_bytes()
        runs.start(tmp_path / "killed", None)
        assert len(server.requests) == asked

    whole, killed = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "killed"))
    assert killed["answered"] == CONVERSATIONS * TURNS * len(METHODS)
    assert without_times(whole) == without_times(killed)
    assert (tmp_path / "killed" / "report.json").read_bytes() == first
    twice = []
    for body, times in came.items():
        # Beyond what a run without a kill asks for, a request may only be there where its reply was under way at a kill.
        late = sum(any(kill - 0.3 < moment for kill in kills if moment < kill + 0.3) for moment in times)
        assert len(times) - once[body] <= late
        twice += [body] * max(0, len(times) - once[body])
    assert len(twice) <= CONCURRENCY * 5 * len(kills)
