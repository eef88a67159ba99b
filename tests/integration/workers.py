"""Conversations at several servers over one PostgreSQL, which are killed in turn: `python -m tests.integration.workers`.

The workers are processes of `convcoa serve` with a model and a database in common, and nothing else: conversations and
passages are in that database, unless `--retriever index` puts the passages in a folder that they share. Each conversation goes
to another worker with every question; whoever gets no answer asks again, at the next worker, with the same message id. What
was lost, doubled or mixed is told from the threads, and a model call that was made again from the model's own record and from
what the database held of its turn before. With `--proxy` the conversations go through nginx with the configuration in
`deploy/`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from langgraph_convcoa.cli.options import INDEX_VARIABLE
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests import ROOT
from tests.bounds import SECONDS, wait_until
from tests.fake_encoder import WordEncoder
from tests.fakes import corrections, documents, node, plan
from tests.integration.turns import context, serve
from tests.openai_server import OpenAIServer, Reply, kind_of, prompt_of
from tests.postgres_server import pgvector_server

_PATIENCE = 3 * SECONDS
"""For one answer, on a machine that does much else."""
RETRIEVERS = ("engine", "index")
NUMBER = r"talk (\d+), question (\d+)"
Call = tuple[str, int, str]
"""A thread, the number of a question, and the node of the call."""


def name_of(talk: int) -> str:
    return f"talk-{talk}"


class Worker:
    """A server at a port of its own, which may be killed and started again."""

    def __init__(self, number: int, port: int, words: Sequence[str], environment: dict[str, str], folder: Path) -> None:
        self.number, self.url, self._words = number, f"http://127.0.0.1:{port}", [*words, "--port", str(port)]
        self._environment, self._log = environment, folder / f"worker-{number}.log"
        self._log.touch()
        self.starts = 0
        self.killed: dict[str, float] = {}

    @property
    def key(self) -> str:
        """Tells the model which process asks."""
        return f"worker-{self.number}.{self.starts}"

    def start(self) -> None:
        self.starts += 1
        environment = {**self._environment, "OPENAI_API_KEY": self.key}
        self.process = context().Process(target=serve, args=(self._words, environment, str(self._log)), daemon=True)
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(SECONDS)
        self.killed[f"Bearer {self.key}"] = time.monotonic()

    def ready(self) -> bool:
        assert self.process.exitcode is None, f"worker {self.number} ended: {self._log.read_text()[-2_000:]}"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/ok", timeout=5).status_code == 200
        return False


@dataclass
class Told:
    """What the people at the conversations saw."""

    asked: dict[str, list[str]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    after_a_failure: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


class Workers:
    """A database, a model and workers over both, for a block; the passages are in the database or, as "index", in a folder."""

    def __init__(self, address: str, folder: Path, count: int, think: float, retriever: str = RETRIEVERS[0]) -> None:
        self.address, self.folder, self.think = address, folder, think
        self.let = threading.Event()
        self.let.set()
        self.calls: list[tuple[float, Call, str]] = []
        self.finished: list[tuple[float, set[Call]]] = []
        self.model = OpenAIServer(self._reply, piece=60)
        environment = {"CONVCOA_DATA_DIR": str(folder / "data"), "CONVCOA_STORE": address}
        environment[INDEX_VARIABLE] = loaded(address) if retriever == "engine" else str(indexed(folder))
        given = ["--model", "openai:test", "--base-url", self.model.base_url]
        self.workers = [Worker(number, port, given, environment, folder) for number, port in enumerate(free_ports(count))]
        self.urls = [worker.url for worker in self.workers]

    def __enter__(self) -> Workers:
        self.model.__enter__()
        try:
            for worker in self.workers:
                worker.start()
            for worker in self.workers:
                wait_until(worker.ready, "a worker starts", _PATIENCE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.starts:
                worker.kill()
        self.model.__exit__()

    def _reply(self, body: dict[str, Any]) -> Reply:
        """A plan of two sub-questions that are this question's own, then their answers; each call is written down."""
        assert self.let.wait(SECONDS)
        talk, number = re.findall(NUMBER, prompt_of(body))[-1]
        kind = "correct" if kind_of(body) == "correct" else "plan"
        self.calls.append((time.monotonic(), (name_of(int(talk)), int(number), kind), self.model.keys[-1]))
        own = f"talk {talk}, question {number}"
        if kind == "plan":
            steps = [node(f"When was the Hopfield network described, {own}?"), node(f"Who introduced sparsemax, {own}?")]
            return Reply(plan(*steps), delay=self.think)
        told = corrections(
            "In 1982.", "Martins and Astudillo.", final=f"John Hopfield described the network in 1982 [1]. This is {own}."
        )
        return Reply(told, delay=self.think)

    async def note(self) -> None:
        """Keep which model calls the database holds the results of, at this time."""
        import psycopg

        found: dict[str, tuple[int, set[str]]] = {}
        query = (
            "SELECT thread_id, task_path, CASE WHEN channel = 'asked' THEN blob END FROM checkpoint_writes"
            " WHERE channel <> '__error__' ORDER BY thread_id, checkpoint_id"
        )
        async with await psycopg.AsyncConnection.connect(self.address) as connection:
            rows = await (await connection.execute(query)).fetchall()
        for thread, path, asked in rows:
            number, nodes = found.get(thread, (-1, set()))
            if asked is not None:
                # A turn whose worker was killed before it could prune has left its steps before those of this one.
                nodes = set()
                number = int(re.findall(NUMBER, bytes(asked).decode("utf-8", "replace"))[-1][1])
            found[thread] = number, nodes | {path.rpartition(" ")[2]}
        held = {(name, number, node) for name, (number, nodes) in found.items() for node in nodes & {"plan", "correct"}}
        self.finished.append((time.monotonic(), {call for call in held if call[1] >= 0}))

    def repeated(self) -> list[Call]:
        """Calls that were made after the database held their results, by processes that lived: a request may come late."""
        kept = dict[Call, float]()
        killed = {key: moment for worker in self.workers for key, moment in worker.killed.items()}
        for moment, calls in self.finished:
            for call in calls:
                kept.setdefault(call, moment)
        return [call for moment, call, key in self.calls if kept.get(call, moment) < moment < killed.get(key, math.inf)]


def indexed(folder: Path) -> Path:
    """An index of a few facts, which the workers share."""
    retriever = HopfieldRetriever.from_documents(documents(), encoder=WordEncoder())
    retriever.save_pretrained(folder / "facts.index")
    return folder / "facts.index"


def loaded(address: str) -> str:
    """The address of the same facts in the database."""
    with HopfieldRetriever.from_engine(address, collection="facts", encoder=WordEncoder()) as retriever:
        retriever.add_documents(documents())
    return f"{address}?collection=facts"


def free_ports(count: int) -> list[int]:
    """Ports that no other program gets by asking for any: a worker that is killed comes back at its own."""
    from langgraph_convcoa.server.app import listen

    found: set[int] = set()
    while len(found) < count:
        with contextlib.suppress(InputError), listen("127.0.0.1", random.SystemRandom().randrange(20_000, 32_000)) as free:
            found.add(free.getsockname()[1])
    return [*found]


async def ask(client: httpx.AsyncClient, urls: Sequence[str], talk: int, number: int, told: Told) -> None:
    """Ask until there is an answer, each time at the next worker."""
    name, question = name_of(talk), f"When was the Hopfield network described, talk {talk}, question {number}?"
    message = {"role": "user", "content": question, "id": f"{name}.{number}"}
    body = {"input": {"messages": [message]}, "stream_mode": ["values"], "if_not_exists": "create"}
    begin, failed = time.monotonic(), 0
    while True:
        assert time.monotonic() - begin < _PATIENCE, f"{name}: no answer within {_PATIENCE} s; {told.failures}"
        text, failure = "", ""
        try:
            url = urls[(talk + number + failed) % len(urls)]
            async with client.stream("POST", f"{url}/threads/{name}/runs/stream", json=body) as response:
                async for part in response.aiter_text():
                    text += part
            if response.status_code != 200:
                failure = str(response.status_code)
        except httpx.HTTPError as error:
            failure = "refused" if isinstance(error, httpx.ConnectError) else "cut"
        if not failure and '"status":"success"' not in text:
            failure = text.partition('"message":"')[2].partition('"}')[0][:90] or "cut"
        if not failure:
            break
        told.failures[failure] += 1
        failed += 1
        await asyncio.sleep(0.2)
    told.asked.setdefault(name, []).append(question)
    took = time.monotonic() - begin
    (told.after_a_failure if failed else told.seconds).append(took)


async def converse(urls: Sequence[str], talks: int, told: Told, ended: asyncio.Event, pause: float) -> None:
    """So many conversations at once, each with a question after about so many seconds."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(timeout=SECONDS, limits=limits) as client:

        async def person(talk: int) -> None:
            chance, number = random.Random(talk), 0
            await asyncio.sleep(chance.uniform(0, pause))
            while not ended.is_set():
                await ask(client, urls, talk, number, told)
                number += 1
                await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)

        await asyncio.gather(*map(person, range(talks)))


async def kill(found: Workers, told: Told, seconds: float, every: float, again: int) -> int:
    """Kill a worker every so many seconds, each in turn, and start it again; how often that was done.

    Between two kills a turn is answered that was asked once, however slow the machine is. The end comes after so many kills
    and as many turns that were asked again.
    """
    end, kills, answered = time.monotonic() + seconds, 0, 0
    upcoming = time.monotonic() + every
    while time.monotonic() < end or min(kills, len(told.after_a_failure)) < again:
        await found.note()
        await asyncio.sleep(min(0.5, max(0.0, upcoming - time.monotonic())))
        worker = found.workers[kills % len(found.workers)]
        # One that is still starting is given the time: a kill is to hit turns.
        due = time.monotonic() >= upcoming and len(told.seconds) > answered
        if due and await asyncio.to_thread(worker.ready):
            await asyncio.to_thread(worker.kill)
            await found.note()
            worker.start()
            kills, upcoming, answered = kills + 1, max(upcoming + every, time.monotonic()), len(told.seconds)
    return kills


def check(found: Workers, told: Told) -> dict[str, int]:
    """What was lost, doubled, mixed or repeated, as each of the workers tells the threads."""
    wrong: Counter[str] = Counter(lost=0, doubled=0, mixed=0, out_of_order=0, repeated=len(found.repeated()))
    for url in found.urls:
        for name, asked in told.asked.items():
            rounds = httpx.get(f"{url}/convcoa/threads/{name}", timeout=SECONDS).json()["rounds"]
            kept = [one["question"] for one in rounds]
            own = name.replace("-", " ")
            wrong["lost"] += len(set(asked) - set(kept))
            wrong["doubled"] += len(kept) - len(set(kept))
            wrong["mixed"] += sum(f"{own}, " not in f"{one['question']}" for one in rounds)
            answers = [f"This is {own}, question {number}" in one["answer"] for number, one in enumerate(rounds)]
            wrong["mixed"] += answers.count(False)
            wrong["out_of_order"] += kept != asked
    return dict(wrong)


def moved(found: Workers) -> int:
    """Turns whose plan one process got and whose answers another."""
    who: dict[tuple[str, int], dict[str, str]] = {}
    for _, (name, number, kind), key in found.calls:
        who.setdefault((name, number), {})[kind] = key
    return sum(len({*keys.values()}) > 1 for keys in who.values())


def run(
    found: Workers, urls: Sequence[str], talks: int, seconds: float, every: float, pause: float, again: int = 0
) -> dict[str, Any]:
    """Converse and kill, then say what came of it."""
    told = Told()

    async def both() -> int:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(converse(urls, talks, told, ended := asyncio.Event(), pause))
            kills = await kill(found, told, seconds, every, again)
            ended.set()
        return kills

    kills = asyncio.run(both())
    for worker in found.workers:
        wait_until(worker.ready, "a worker starts again", _PATIENCE)
    turns = sum(map(len, told.asked.values()))

    def times(seconds: list[float]) -> dict[str, float]:
        ordered = sorted(seconds) or [0.0]
        return {f"p{part}": round(ordered[len(ordered) * part // 100], 2) for part in (50, 95, 99)}

    return {
        "workers": len(found.workers), "conversations": len(told.asked), "seconds": seconds, "kills": kills, "turns": turns,
        "turns_moved_in_the_middle": moved(found), "turns_asked_again": len(told.after_a_failure), "why": dict(told.failures),
        "seconds_of_a_turn": times(told.seconds), "seconds_of_a_turn_asked_again": times(told.after_a_failure),
        "model_calls_beyond_two_a_turn": len(found.calls) - 2 * turns, **check(found, told),
    }  # fmt: skip


@contextmanager
def proxied(urls: Sequence[str], folder: Path) -> Iterator[str]:
    """The address of an nginx with the configuration of `deploy/` before these servers."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert program, "no nginx here: install the Debian package nginx-light"
    (port,) = free_ports(1)
    servers = "\n".join(f"server {url.removeprefix('http://')} max_fails=1 fail_timeout=1s;" for url in urls)
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    text = re.sub(r"server worker:8321 [^;]*;", servers, text)
    text = re.sub(r"\s+(resolver|zone) [^;]*;", "", text)
    text = text.replace("listen 8080", f"listen 127.0.0.1:{port}")
    (folder / "site.conf").write_text(text)
    kept = " ".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; events {{}}\n"
        f"http {{ access_log off; {kept}\ninclude {folder}/site.conf; }}\n"
    )
    process = subprocess.Popen([program, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "nginx.log")])
    url = f"http://127.0.0.1:{port}"

    def there() -> bool:
        assert process.poll() is None, (folder / "nginx.log").read_text()
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/ok", timeout=5).status_code == 200
        return False

    try:
        wait_until(there, "nginx starts")
        yield url
    finally:
        process.terminate()
        process.wait(SECONDS)


def main() -> None:
    """Run for a minute and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kill-every", type=float, default=5)
    parser.add_argument("--pause", type=float, default=8, help="seconds between an answer and the next question, on average")
    parser.add_argument("--think", type=float, default=0.3, help="seconds that the model takes for a call")
    parser.add_argument("--retriever", choices=RETRIEVERS, default=RETRIEVERS[0], help="where the passages are")
    parser.add_argument("--proxy", action="store_true", help="through nginx with the configuration in deploy/")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, pgvector_server() as address:
        place = Path(folder)
        with Workers(address, place, given.workers, given.think, given.retriever) as found, contextlib.ExitStack() as more:
            urls = [more.enter_context(proxied(found.urls, place))] if given.proxy else found.urls
            print(json.dumps(run(found, urls, given.conversations, given.seconds, given.kill_every, given.pause)))


if __name__ == "__main__":
    main()
