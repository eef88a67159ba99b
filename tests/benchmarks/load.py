"""Turns a second of people at a server, with a model and actions that answer at once: `make bench-load`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langgraph_convcoa import ActionRequest, build_graph

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Instant(BaseChatModel):
    """Plans one look-up, which is answered by its guess."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        answer = "John Hopfield described the Hopfield network in 1982."
        step = {"action": "instant", "sub": "When was it described?", "guess_answer": answer, "missing_flag": False}
        plan = {"optimized_question": "When was it described?", "chain": [step], "final_answer": answer}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(json.dumps(plan)))])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


class Evidence:
    """One document of so many characters, another one each time."""

    name = "instant"
    description = "finds everything at once"

    def __init__(self, characters: int) -> None:
        self.characters, self.asked = characters, 0

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        self.asked += 1
        n, text = self.asked, "John Hopfield described the Hopfield network in 1982. "
        words = [
            f"Sentence {i} of page {n} tells of the city of Place{n * 7 % 9973} and of {i * n % 10_007} patterns. "
            for i in range(12)
        ]
        text += "".join(words) * (self.characters // sum(map(len, words)) + 1)
        return [Document(text[: self.characters], id=f"d{n}", metadata={"source": f"page {n}"})]


def serving(folder: str) -> None:
    """The server that `serve` asks, on a free port, which it prints."""
    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.server.app import ConvCoAServer, address_of, create_app, listen
    from langgraph_convcoa.server.collections import Collection
    from langgraph_convcoa.server.service import Settings
    from langgraph_convcoa.storage.sqlite import SqliteStore

    place = Path(folder)
    settings = Settings(
        store=SqliteStore(place / "store.sqlite"),
        make_graph=lambda _: build_graph(model=Instant(), actions=[Evidence(1_000)]),
        context=ConvCoAContext(),
        folder=place / "collections",
        new_retriever=lambda _: None,  # type: ignore[arg-type,return-value]
        collections=[Collection("all", "All", "all")],
    )
    app = create_app(settings)
    with listen("127.0.0.1", 0) as listening:
        server = ConvCoAServer(app, app.service, lambda: print(address_of(listening), os.getpid(), flush=True))
        server.run(sockets=[listening])


async def people(address: str, pid: int, count: int, seconds: float, pause: float) -> dict[str, Any]:
    """So many people at a server, who each ask, read the stream to its end, pause for about so many seconds, and ask again."""
    import httpx

    times: list[float] = []
    first: list[float] = []
    held: list[float] = []
    threads: dict[str, list[str]] = {}
    start, used = time.perf_counter(), _processor_seconds_of(pid)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:

        async def person(number: int) -> None:
            chance = random.Random(number)
            await asyncio.sleep(chance.random() * max(pause, 0.5))
            turn, thread = 0, ""
            while time.perf_counter() - start < seconds:
                if turn % 5 == 0:
                    thread = (await client.post("/threads", json={})).json()["thread_id"]
                    threads[thread] = []
                question = f"When was it described, {number}-{turn}?"
                threads[thread].append(question)
                body = {"input": {"question": question}, "stream_mode": ["messages-tuple", "custom", "values"]}
                begin, text, seen = time.perf_counter(), "", 0.0
                async with client.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
                    assert response.status_code == 200, response.status_code
                    async for part in response.aiter_text():
                        seen = seen or time.perf_counter()
                        text += part
                times.append(time.perf_counter() - begin)
                first.append(seen - begin)
                assert '"status":"success"' in text, text[-300:]
                assert "1982" in text
                turn += 1
                if pause:
                    await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)

        async def watch() -> None:
            while time.perf_counter() - start < seconds:
                await asyncio.sleep(seconds / 10)
                held.append(round(_megabytes_of(pid)))

        await asyncio.gather(watch(), *map(person, range(count)))
        used = _processor_seconds_of(pid) - used
        for thread, questions in threads.items():
            told = (await client.get(f"/convcoa/threads/{thread}")).json()["rounds"]
            assert [one["question"] for one in told] == questions, "threads are mixed"
    times.sort()
    return {
        "people": count,
        "pause_seconds": pause,
        "turns": len(times),
        "turns_per_second": round(len(times) / seconds, 1),
        "ms": {f"p{part}": round(1000 * times[len(times) * part // 100], 1) for part in (50, 95, 99)},
        "first_byte_ms_p95": round(1000 * sorted(first)[len(first) * 95 // 100], 1),
        "processor_ms_a_turn": round(1000 * used / len(times), 1),
        "server_megabytes": held,
        "threads": len(threads),
    }


def _processor_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _megabytes_of(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES / 1e6


def serve(count: int, seconds: float, pause: float) -> dict[str, Any]:
    """`people` at a server in a process of its own, after a first turn of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.load", "serving", "--folder", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address, pid = process.stdout.readline().split()
            try:
                asyncio.run(people(address, int(pid), 5, 2, 0))
                return asyncio.run(people(address, int(pid), count, seconds, pause))
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["serve", "serving"])
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds that a person reads, on average")
    parser.add_argument("--folder", help="where the server keeps what it stores")
    given = parser.parse_args()
    if given.what == "serving":
        with contextlib.suppress(KeyboardInterrupt):
            serving(given.folder)
    else:
        print(json.dumps(serve(given.people, given.seconds, given.pause)))


if __name__ == "__main__":
    main()
