"""A turn that is killed at any point goes on where it was: nothing lost, nothing doubled, no finished model call repeated."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.storage.threads import Threads
from tests.bounds import wait_until
from tests.fakes import corrections, node, plan
from tests.integration.turns import THREAD, context, one_turn
from tests.openai_server import OpenAIServer, Reply, kind_of, prompt_of

pytest.importorskip("langgraph.checkpoint.sqlite")

KILLS = 30
MOST_TRIALS = 90
WAIT_SECONDS = 120
_ORDER = ["plan", "correct"]
MODEL_NODES = set(_ORDER)


def script(body: dict[str, Any]) -> Reply:
    """A plan of two sub-questions that are this turn's own, one of them on a slow action; then all the answers."""
    number = re.findall(r"number (\d+)", prompt_of(body))[-1]
    replies = {
        "plan": plan(
            node(f"When was the Hopfield network described, number {number}?"),
            node(f"What takes its time, number {number}?", action="waiting"),
        ),
        "correct": corrections("In 1982.", "A fact.", final="It was described in 1982 [1]."),
    }
    return Reply(replies[kind_of(body)], delay=0.05)


class Killed:
    """One turn in a process, killed after a while."""

    def __init__(self, store: Path, server: OpenAIServer, question: str, model: str = "test") -> None:
        receiver, sender = context().Pipe(duplex=False)
        self.process = context().Process(
            target=one_turn, args=(str(store), server.base_url, model, question, sender), daemon=True
        )
        self.process.start()
        sender.close()
        assert receiver.poll(WAIT_SECONDS)
        assert receiver.recv() == "begin"
        self.receiver = receiver

    def after(self, seconds: float) -> bool:
        """Kill it then; False where it had ended."""
        if self.receiver.poll(seconds):
            self.finish()
            return False
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(WAIT_SECONDS)
        return self.process.exitcode == -signal.SIGKILL

    def finish(self) -> float:
        """Let it end; how long that took."""
        start = time.monotonic()
        self.process.join(WAIT_SECONDS)
        assert self.process.exitcode == 0
        return time.monotonic() - start


def stored(store: Path) -> set[tuple[str, str]]:
    """The tasks whose results are in the file, by id and path; a turn that was killed after its end has left its own there."""
    with closing(sqlite3.connect(store)) as connection:
        return set(connection.execute("SELECT DISTINCT task_id, task_path FROM writes"))


def committed(tasks: set[tuple[str, str]]) -> set[str]:
    """The nodes that these tasks are of."""
    return {name for _, path in tasks for name in MODEL_NODES if re.search(rf"\b{name}\b", path)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thirty_kills_at_random_points_lose_double_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(6)
    store = tmp_path / "store.sqlite"
    asked: list[str] = []
    points: Counter[str] = Counter()
    kills = trials = 0
    with OpenAIServer(script) as server:

        def calls(model: str) -> Counter[str]:
            """What a process asked for, which a model's name tells from others: one request may arrive after its kill."""
            return Counter(kind_of(body) for body in server.requests if body["model"] == model)

        def asked_for(model: str, made: int) -> bool:
            return calls(model).total() >= made

        def answered(turn: Killed, before: set[tuple[str, str]]) -> bool:
            """Whether the last call's reply is stored; a turn that has ended keeps nothing of its steps."""
            return "correct" in committed(stored(store) - before) or turn.receiver.poll()

        whole = 0.0
        for _ in range(2):
            asked.append(f"When was it described, number {len(asked)}?")
            whole = Killed(store, server, asked[-1]).finish()
        while kills < KILLS:
            trials += 1
            assert trials <= MOST_TRIALS, f"only {kills} turns could be killed before they ended"
            question = f"When was it described, number {len(asked)}?"
            asked.append(question)
            before = stored(store)
            # A while after the beginning or one of the two calls, or once the last is stored: each part of a turn is hit.
            part, model = trials % 4, f"killed {trials}"
            turn = Killed(store, server, question, model)
            if part < 3:
                wait_until(partial(asked_for, model, part), "a call of the model", WAIT_SECONDS)
            else:
                wait_until(partial(answered, turn, before), "the last call's reply", WAIT_SECONDS)
            if not turn.after(chance.uniform(0, (whole / 2, whole / 3, whole / 6, 0.0)[part])):
                continue
            kills += 1
            finished = committed(stored(store) - before)
            with Threads(store) as threads:
                rounds = [entry["original_question"] for entry in threads.show(THREAD)]
                [summary] = threads.summaries()
            if rounds == asked:
                # Killed after its last step, before the process could say so.
                assert not summary.unfinished
                points["after remember"] += 1
                continue
            points[f"after {max(finished, key=_ORDER.index)}" if finished else "before the plan"] += 1
            assert rounds == asked[:-1]
            # The person asks again, and the turn goes on; nothing of it was stored where it had not yet begun.
            assert summary.unfinished in ("", question)
            Killed(store, server, question, f"resumed {trials}").finish()
            repeated = calls(f"resumed {trials}")
            assert not finished & set(repeated), f"{finished} were stored, and {repeated} were called for"
            assert set(repeated) | finished == MODEL_NODES
            assert set(repeated.values()) <= {1}
        with Threads(store) as threads:
            kept = threads.show(THREAD)
    assert [entry["original_question"] for entry in kept] == asked
    assert [entry["round"] for entry in kept] == list(range(1, len(asked) + 1))
    print(f"{kills} kills in {trials} trials: {dict(points)}")
    # The points were spread over the turn, or this would have shown little.
    assert len(points) >= 3
