"""The pictures of the documentation, made from real runs: `make pictures`."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

STATIC = Path(__file__).parent / "_static"
WIDTH = 108
CONVERSATION = ("Who introduced the Hopfield network?", "When was it published?")


def terminal_picture() -> None:
    """A question and a follow-up at the terminal, offline, with their citations and the actions that found them."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for question in CONVERSATION:
            command = ["ask", question, "--docs", "demo", "--store", f"{folder}/talk.sqlite", "--thread", "a"]
            run = [sys.executable, "-m", "langgraph_convcoa", *command]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
            console.print(Text(f'$ convcoa ask "{question}" --docs demo --thread a', style="bold green"))
            console.print(Text.from_ansi(done.stdout.strip()))
            steps = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("Encoding")]
            console.print(Text("\n".join(steps) + "\n", style="dim"))
    console.save_svg(str(STATIC / "answer.svg"), title="convcoa")


def cost_picture() -> None:
    """Model calls and tokens of the methods under one script."""
    command = ["evaluate", "costs", "--plot", str(STATIC / "costs.svg")]
    subprocess.run([sys.executable, "-m", "langgraph_convcoa", *command], check=True, capture_output=True)


if __name__ == "__main__":
    STATIC.mkdir(exist_ok=True)
    terminal_picture()
    cost_picture()
