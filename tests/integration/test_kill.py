"""A turn that is killed at any point goes on where it was: nothing lost, nothing doubled, no finished model call repeated."""

from __future__ import annotations

import random
import re
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.storage.threads import Threads
from tests.bounds import SECONDS
from tests.fakes import corrections, node, plan
from tests.integration.turns import MODEL_NODES, THREAD, committed, context, one_turn, stored
from tests.openai_server import OpenAIServer, Reply, kind_of, prompt_of

pytest.importorskip("langgraph.checkpoint.sqlite")

KILLS = 30


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


class Turn:
    """One turn in a process, to its end or to a kill."""

    def __init__(self, store: Path, server: OpenAIServer, question: str, model: str = "test", most: int | None = None) -> None:
        self.receiver, sender = context().Pipe(duplex=False)
        given = (str(store), server.base_url, model, question, sender, most)
        self.process = context().Process(target=one_turn, args=given, daemon=True)
        self.process.start()
        sender.close()
        assert self.said() == "begin"

    def said(self) -> str:
        assert self.receiver.poll(SECONDS)
        return str(self.receiver.recv())

    def kill(self, writes: int, seconds: float) -> None:
        """Kill it some time after it began so many writes, which it has not gone on from by then."""
        for _ in range(writes):
            if self.said() == "end":
                break
        time.sleep(seconds)
        self.process.kill()
        self.process.join(SECONDS)
        assert self.process.exitcode == -signal.SIGKILL

    def finish(self) -> int:
        writes = len([*iter(self.said, "end")])
        self.process.join(SECONDS)
        assert self.process.exitcode == 0
        return writes


@pytest.mark.slow
def test_thirty_kills_at_random_points_lose_double_and_repeat_nothing(tmp_path: Path) -> None:
    """Each write of a turn is the last that a killed process may begin, as often as every other."""
    chance = random.Random(6)
    store = tmp_path / "store.sqlite"
    asked: list[str] = []
    points: Counter[str] = Counter()
    with OpenAIServer(script) as server:

        def next_question() -> str:
            asked.append(f"When was it described, number {len(asked)}?")
            return asked[-1]

        Turn(store, server, next_question()).finish()
        begin = time.monotonic()
        writes = Turn(store, server, next_question()).finish()
        a_write = (time.monotonic() - begin) / writes
        for trial in range(KILLS):
            question, before, last = next_question(), stored(store), trial % (writes + 1)
            Turn(store, server, question, f"killed {trial}", last).kill(last, chance.uniform(0, 2 * a_write))
            finished = committed(stored(store) - before)
            with Threads(store) as threads:
                rounds = [entry["original_question"] for entry in threads.show(THREAD)]
                [summary] = threads.summaries()
            if rounds == asked:
                # Killed after its last step, before the process could say so.
                assert not summary.unfinished
                points["after remember"] += 1
                continue
            points[f"after {max(finished, key=MODEL_NODES.index)}" if finished else "before the plan"] += 1
            assert rounds == asked[:-1]
            # The person asks again, and the turn goes on; nothing of it was stored where it had not yet begun.
            assert summary.unfinished in ("", question)
            Turn(store, server, question, f"resumed {trial}").finish()
            # A model's name tells a process from the others: one request may arrive after its kill.
            repeated = Counter(kind_of(body) for body in server.requests if body["model"] == f"resumed {trial}")
            assert not finished & set(repeated), f"{finished} were stored, and {repeated} were called for"
            assert set(repeated) | finished == {*MODEL_NODES}, f"{finished} of {last} of {writes} writes, and {repeated}"
            assert set(repeated.values()) <= {1}
        with Threads(store) as threads:
            kept = threads.show(THREAD)
    assert [entry["original_question"] for entry in kept] == asked
    assert [entry["round"] for entry in kept] == list(range(1, len(asked) + 1))
    print(f"{KILLS} kills in turns of {writes} writes: {dict(points)}")
    # The points were spread over the turn, or this would have shown little.
    assert len(points) >= 3
