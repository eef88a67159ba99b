"""Runs that come at once: of one conversation, and of a model that blocks its thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import SECONDS, wait_until
from tests.fakes import ScriptedModel, direct
from tests.server.served import ANSWER, QUESTION, Served, served

TURNS = 50
"""Slow turns at once, several times the threads that asyncio has by default."""


@pytest.mark.parametrize("strategy", ["interrupt", "rollback", "enqueue"])
def test_runs_that_come_at_once_all_end_and_leave_the_thread_free(server: Served, strategy: str) -> None:
    thread = server.thread_id()
    given = {"input": {"question": QUESTION}, "multitask_strategy": strategy}

    def run(_: int) -> Any:
        with server.client() as http:
            return http.post(f"/threads/{thread}/runs/wait", json=given).json()

    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(run, range(8)))
    answered = [output for output in outputs if output.get("answer") == ANSWER]
    assert len(answered) >= (8 if strategy == "enqueue" else 1)
    assert server.ask("GET", f"/threads/{thread}").json()["status"] in ("idle", "interrupted")
    assert server.ask("DELETE", f"/threads/{thread}").status_code == 204
    assert not server.service.runs.active


def test_turns_of_a_model_that_blocks_leave_the_rest_of_the_server_free(tmp_path: Path) -> None:
    # The turns and this test: they meet when every turn waits in its model, and part when the server has answered.
    barrier = threading.Barrier(TURNS + 1)

    def reply(_: str) -> str:
        barrier.wait(SECONDS)
        barrier.wait(SECONDS)
        return direct(ANSWER)

    with served(tmp_path, model=ScriptedModel(by_prompt=reply)) as slow:
        threads = [slow.thread_id() for _ in range(TURNS)]
        for thread in threads:
            made = slow.ask("POST", f"/threads/{thread}/runs", json={"input": {"question": QUESTION}})
            assert made.status_code == 200, made.text
        barrier.wait(SECONDS)
        for path in ("/convcoa/info", "/", "/convcoa/collections", f"/threads/{threads[0]}"):
            assert slow.ask("GET", path).status_code == 200, path
        assert len(slow.service.runs.active) == TURNS
        barrier.wait(SECONDS)
        wait_until(lambda: not slow.service.runs.active, "every turn ends")
        for thread in threads:
            assert slow.ask("GET", f"/threads/{thread}").json()["values"]["answer"] == ANSWER
