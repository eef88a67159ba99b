"""A chat at a terminal is kept, killed, and gone on with."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.storage.threads import Threads
from tests.bounds import SECONDS, wait_until
from tests.cli.test_process import Terminal
from tests.fakes import corrections, plan
from tests.openai_server import OpenAIServer, Reply, kind_of

pytestmark = pytest.mark.slow


def test_a_chat_that_is_killed_in_a_turn_offers_to_go_on_with_it(tmp_path: Path) -> None:
    docs = tmp_path / "facts.md"
    docs.write_text("# Hopfield\n\nJohn Hopfield described the Hopfield network in 1982.")
    environment = {
        **os.environ, "CONVCOA_CACHE_DIR": str(tmp_path / "cache"), "CONVCOA_DATA_DIR": str(tmp_path / "data"),
        "OMP_NUM_THREADS": "1", "TERM": "xterm",
    }  # fmt: skip
    hanging = {"correct"}
    replies = {"plan": plan(), "correct": corrections("John Hopfield.", final="John Hopfield described it [1].")}

    def script(body: dict[str, Any]) -> Reply:
        kind = kind_of(body)
        return Reply(replies[kind], delay=10 * SECONDS if kind in hanging else 0)

    with OpenAIServer(script) as server:
        options = ["--docs", docs, "--model", "test", "--base-url", server.base_url]
        with Terminal(environment, "chat", *options) as terminal:
            terminal.expect("A new conversation:")
            terminal.expect("> ")
            terminal.type("Who described the network?\n")
            wait_until(lambda: len(server.requests) >= 2, "the second request of the model")
            # With the second call under way the plan is in the store.
            time.sleep(0.5)
        with Threads(tmp_path / "data" / "conversations.sqlite") as threads:
            [summary] = threads.summaries()
        assert (summary.rounds, summary.unfinished) == (0, "Who described the network?")
        hanging.clear()
        server.requests.clear()
        with Terminal(environment, "chat", *options, "--thread", summary.thread) as terminal:
            terminal.expect("Resume it? [Y/n]")
            terminal.type("\n", "John Hopfield described it [1].", "> ")
            terminal.type("/history\n", "> Who described the network?", "> ")
            terminal.type("exit\n", "Continue later with: ")
            command = shlex.split(terminal.expect("\x1b"))
            assert terminal.code() == 0
        assert [kind_of(body) for body in server.requests] == ["correct"]
        assert command == ["convcoa", "chat", *map(str, options), "--thread", summary.thread]
