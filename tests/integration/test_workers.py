"""Two servers over one PostgreSQL, which has the passages too: kills and questions at once cost a conversation no round."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.bounds import SECONDS, wait_until
from tests.integration.workers import Workers, run
from tests.postgres_server import pgvector_server

pytest.importorskip("psycopg_pool")
pytest.importorskip("langgraph.checkpoint.postgres")


@pytest.mark.slow
def test_two_workers_share_conversations_and_one_is_killed(tmp_path: Path) -> None:
    with pgvector_server() as address, Workers(address, tmp_path, 2, think=1.0) as found:
        first, second = found.urls
        body = {
            "input": {"messages": [{"role": "user", "content": "When, talk 99, question 0?", "id": "a"}]},
            "if_not_exists": "create",
        }
        path = "/threads/talk-99"
        found.let.clear()
        made = httpx.post(f"{first}{path}/runs", json=body, timeout=SECONDS)
        assert made.status_code == 200
        other = {**body, "input": {"question": "And who, talk 99, question 1?"}}
        refused = httpx.post(f"{second}{path}/runs/wait", json=other, timeout=SECONDS)
        assert (refused.status_code, "another server" in refused.json()["detail"]) == (409, True)
        assert httpx.get(f"{second}{path}/runs", timeout=SECONDS).json() == []
        wait_until(lambda: httpx.get(f"{second}{path}", timeout=SECONDS).json()["status"] == "busy", "it is told as busy")
        # One that may wait is answered after it.
        enqueued = {**other, "multitask_strategy": "enqueue"}
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(httpx.post, f"{second}{path}/runs/wait", json=enqueued, timeout=SECONDS)
            wait_until(lambda: waits.done() or httpx.get(f"{second}{path}/runs", timeout=SECONDS).json(), "it waits")
            found.let.set()
        assert "talk 99, question 1" in waits.result().json()["answer"]
        rounds = httpx.get(f"{first}/convcoa/threads/talk-99", timeout=SECONDS).json()["rounds"]
        assert [one["question"][-11:-1] for one in rounds] == ["question 0", "question 1"]
        told = run(found, found.urls, talks=6, seconds=6, every=2.5, pause=0.5, again=1)
    print(told)
    wrong = {name: told[name] for name in ("lost", "doubled", "mixed", "out_of_order", "repeated")}
    assert not any(wrong.values()), told
    assert told["kills"] > 0
    assert told["turns"] > told["turns_asked_again"] > 0
