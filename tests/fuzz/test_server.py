"""A server under arbitrary requests of two users, up to eight at once: runs, approvals, cancels, deletions and uploads."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("python_multipart")

from langgraph_convcoa.server.guard import Access
from tests.bounds import SECONDS, wait_until
from tests.server.served import PROXY, Served, served

pytestmark = pytest.mark.slow

STEPS = 50
EXAMPLES = 40 if settings().max_examples > 1_000 else 4
"""200 steps in the suite, 2,000 by `make fuzz`."""
CLIENTS = 8
USERS = st.sampled_from(["xavier", "yolanda"])
# The same names for both users.
THREADS = st.sampled_from(["one", "two"])
FILES = st.sampled_from(["a.md", "b.md"])
OTHER = {"xavier": "yolanda", "yolanda": "xavier"}
INPUTS = st.sampled_from([
    *({"input": True, **more} for more in ({}, {"context": {"approve": ["answer"]}}, {"on_disconnect": "cancel"})),
    *({"input": None}, {"command": {"resume": {"decisions": [{"type": "approve"}]}}}, {"command": {"resume": "x"}}),
])  # fmt: skip


class Clients(RuleBasedStateMachine):
    """Requests of two users; what must hold is checked when all of them have ended."""

    def __init__(self, server: Served) -> None:
        super().__init__()
        self.server = server
        self.pool = ThreadPoolExecutor(CLIENTS)
        self.running: list[Future[None]] = []
        self.collections: dict[str, str] = {}
        self.jobs: list[tuple[str, str]] = []
        self.files: dict[str, set[str]] = {"xavier": set(), "yolanda": set()}
        self.count = 0

    def ask(self, user: str, method: str, path: str, *statuses: int, **options: Any) -> httpx.Response:
        """A request whose answer has one of the statuses, and nothing of the other user."""
        response = self.server.ask(method, path, headers={PROXY: user}, **options)
        self.check(user, response, statuses or (200,))
        return response

    def check(self, user: str, response: httpx.Response, statuses: tuple[int, ...]) -> None:
        assert response.status_code in statuses, (response.request.url, response.status_code, response.text)
        assert OTHER[user] not in response.text
        assert "internal error" not in response.text

    def begin(self, work: Callable[[], None]) -> None:
        """Let a client work beside the others; if all of them wait, the model answers."""
        self.running = [one for one in self.running if not one.done() or one.result()]
        if len(self.running) == CLIENTS:
            self.settle()
        self.running.append(self.pool.submit(work))

    def settle(self) -> None:
        self.server.let.set()
        for one in self.running:
            one.result(SECONDS)
        self.running = []
        wait_until(lambda: not self.server.service.runs.active, "every run ends")

    @rule(held=st.booleans())
    def hold_the_model(self, held: bool) -> None:
        (self.server.let.clear if held else self.server.let.set)()

    @rule(
        user=USERS,
        thread=THREADS,
        given=INPUTS,
        way=st.sampled_from(["", "/wait", "/stream"]),
        strategy=st.sampled_from(["reject", "enqueue", "interrupt", "rollback"]),
        leaves=st.booleans(),
        clients=st.integers(1, 4),
    )
    def run(self, user: str, thread: str, given: dict[str, Any], way: str, strategy: str, leaves: bool, clients: int) -> None:
        work = self.follow if way == "/stream" and leaves else self.ended
        for _ in range(clients):
            self.count += 1
            body = {**given, "multitask_strategy": strategy, "if_not_exists": "create"}
            if given.get("input"):
                body["input"] = {"question": f"Question {self.count} of {user}: when was the Hopfield network described?"}
            self.begin(partial(work, user, f"/threads/{thread}/runs{way}", body))

    def ended(self, user: str, path: str, body: dict[str, Any]) -> None:
        self.ask(user, "POST", path, 200, 404, 409, json=body)

    def follow(self, user: str, path: str, body: dict[str, Any]) -> None:
        with self.server.http.stream("POST", path, json=body, headers={PROXY: user}) as response:
            for _ in response.iter_bytes():
                break

    @rule(user=USERS, thread=THREADS, what=st.sampled_from(["make", "cancel", "delete", "look", "rename", "ask without"]))
    def one_request(self, user: str, thread: str, what: str) -> None:
        path = f"/threads/{thread}"
        if what == "make":
            self.ask(user, "POST", "/threads", json={"thread_id": thread, "if_exists": "do_nothing"})
        elif what == "cancel":
            found = self.ask(user, "GET", f"{path}/runs", 200, 404).json()
            for run in found if isinstance(found, list) else ():
                own = f"{path}/runs/{run['run_id']}"
                assert self.server.ask("GET", own, headers={PROXY: OTHER[user]}).status_code == 404
                self.ask(user, "POST", f"{own}/cancel", 204, 404)
        elif what == "delete":
            self.ask(user, "DELETE", path, 204, 404)
        elif what == "look":
            self.ask(user, "POST", "/threads/search", json={})
            for place in (path, f"{path}/state", f"/convcoa{path}"):
                self.ask(user, "GET", place, 200, 404)
        elif what == "rename":
            self.ask(user, "PATCH", path, 200, 404, json={"metadata": {"title": f"Of {user}"}})
        else:
            self.begin(partial(self.ended, user, "/runs/wait", {"input": {"question": f"A question of {user}?"}}))

    @rule(user=USERS, file=FILES, delete=st.integers(0, 3))
    def upload(self, user: str, file: str, delete: int) -> None:
        if delete == 0:
            self.delete_collection(user)
            return
        if user not in self.collections:
            made = self.ask(user, "POST", "/convcoa/collections", 201, json={"name": f"Of {user}"}).json()
            self.collections[user] = made["id"]
        self.count += 1
        files = [("files", (file, f"Text {self.count} of {user}.".encode()))]
        job = self.ask(user, "POST", f"/convcoa/collections/{self.collections[user]}/files", 202, files=files).json()["job"]
        self.jobs.append((user, job))
        self.files[user].add(file)

    def delete_collection(self, user: str) -> None:
        if made := self.collections.pop(user, None):
            self.ask(user, "DELETE", f"/convcoa/collections/{made}", 204)
            self.jobs = [job for job in self.jobs if job[0] != user]
            self.files[user].clear()

    def teardown(self) -> None:
        try:
            self.settle()
            for user, job in self.jobs:
                wait_until(partial(self.indexed, user, job), "the upload is indexed")
            for user in OTHER:
                self.check_user(user)
            wait_until(lambda: not self.server.stored(), "deleted threads leave nothing")
        finally:
            self.server.let.set()
            self.pool.shutdown()

    def indexed(self, user: str, job: str) -> bool:
        told = self.ask(user, "GET", f"/convcoa/jobs/{job}").json()
        assert told["status"] != "failed", told
        assert told["skipped"] == []
        return bool(told["status"] == "done")

    def check_user(self, user: str) -> None:
        if user in self.collections:
            listed = self.ask(user, "GET", f"/convcoa/collections/{self.collections[user]}/documents").json()
            assert {one["source"] for one in listed} == self.files[user]
        for thread in self.ask(user, "POST", "/threads/search", json={}).json():
            name = thread["thread_id"]
            assert thread["status"] in ("idle", "interrupted", "error"), thread
            body = {"input": {"question": f"The last question of {user}?"}}
            assert "answer" in self.ask(user, "POST", f"/threads/{name}/runs/wait", json=body).json()
            self.ask(user, "DELETE", f"/threads/{name}", 204)
        assert self.ask(user, "POST", "/threads/search", json={}).json() == []
        self.delete_collection(user)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    access = Access(user_header=PROXY, proxies=(ipaddress.ip_network("127.0.0.1"),), max_upload=1_000_000)
    with served(tmp_path_factory.mktemp("fuzzed"), access) as found:
        yield found


def test_whatever_two_users_ask_at_once_nothing_is_stuck_lost_or_shown_to_the_other(shared: Served) -> None:
    fuzzed = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(lambda: Clients(shared), settings=fuzzed)
    assert shared.ask("GET", "/ok").status_code == 200

    def idle() -> bool:
        before = time.process_time()
        time.sleep(1)
        return time.process_time() - before < 0.25

    wait_until(idle, "the server is idle")
