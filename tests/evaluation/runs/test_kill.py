"""A run that is killed at any point ends with the same report as one that is not, and asks again only what was under way."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import SECONDS, wait_until
from tests.evaluation.runs.process import (
    CONCURRENCY,
    CONVERSATIONS,
    METHODS,
    TURNS,
    is_judged,
    place_of,
    run,
    script,
    write_data,
)
from tests.openai_server import OpenAIServer, Reply

KILLS = 5


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(entry) for name, entry in value.items() if name != "seconds"}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value


def paid(requests: Iterable[dict[str, Any]]) -> Counter[str]:
    """The requests that were answered; a failure is not paid for."""
    # Each counts once: two methods with one answer may be judged at the same time, by equal requests.
    return Counter({json.dumps(body, sort_keys=True) for body in requests if script(body).status == 200})


class Runs:
    """Starts runs in processes of their own, each with its number as its API key."""

    def __init__(self, data: Path) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.evaluation.runs.process", "langchain_openai"])
        self.data, self.server = data, OpenAIServer(self.reply)
        self.started = 0
        self.most: int | None = None

    def reply(self, body: dict[str, Any]) -> Reply:
        """Answer as the script says, but only so many requests of a start that is to be killed."""
        held = self.most is not None and self.asked() > self.most
        return replace(script(body), delay=10 * SECONDS) if held else script(body)

    def start(self, out: Path, most: int | None = None, wait: float = 0.0) -> None:
        """Run to the end; or until so many requests are made, and be killed some time after the last of them."""
        self.started, self.most = self.started + 1, most
        arguments = (str(self.data), str(out), self.server.base_url, "test", str(self.started))
        process = self.context.Process(target=run, args=arguments, daemon=True)
        process.start()
        if most is not None:
            wait_until(lambda: self.asked() >= most or process.exitcode is not None, "the requests")
            time.sleep(wait)
            process.kill()
        process.join(SECONDS)
        assert process.exitcode == (0 if most is None else -signal.SIGKILL)

    def asked(self) -> int:
        return self.server.keys.count(f"Bearer {self.started}")

    def requests(self, start: int) -> list[dict[str, Any]]:
        asked = zip(self.server.keys, self.server.requests, strict=True)
        return [body for key, body in asked if key == f"Bearer {start}"]

    def under_way(self, start: int) -> Counter[str]:
        """The requests that may have had no reply when a start was killed."""
        # A conversation makes one request at a time, so it is the last of each conversation; the judge makes a few at a time.
        asked = self.requests(start)
        last = {place_of(body)[0]: body for body in asked if not is_judged(body)}
        return paid([*last.values(), *[body for body in asked if is_judged(body)][-CONCURRENCY:]])


@pytest.mark.slow
def test_killed_runs_end_with_the_same_report_and_ask_again_only_what_was_under_way(tmp_path: Path) -> None:
    chance = random.Random(7)
    runs = Runs(write_data(tmp_path / "things"))
    with runs.server as server:
        begin = time.monotonic()
        runs.start(tmp_path / "whole")
        once = paid(runs.requests(1))
        a_request = (time.monotonic() - begin) / once.total()
        for _ in range(KILLS):
            # All of them together leave requests to be made, so that none comes to its end.
            runs.start(tmp_path / "killed", chance.randint(1, once.total() // (KILLS + 1)), chance.uniform(0, 3 * a_request))
        killed_starts = range(2, runs.started + 1)
        runs.start(tmp_path / "killed")
        asked = len(server.requests)
        first = (tmp_path / "killed" / "report.json").read_bytes()
        runs.start(tmp_path / "killed")
        assert len(server.requests) == asked

    whole, killed = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "killed"))
    assert killed["answered"] == CONVERSATIONS * TURNS * len(METHODS)
    assert without_times(whole) == without_times(killed)
    assert (tmp_path / "killed" / "report.json").read_bytes() == first
    in_all = sum((paid(runs.requests(start)) for start in range(2, runs.started + 1)), Counter())
    assert once.total() > killed["answered"]
    assert once <= in_all
    again = in_all - once
    assert again <= sum(map(runs.under_way, killed_starts), Counter())
    assert again.total() <= CONCURRENCY * len(killed_starts)
