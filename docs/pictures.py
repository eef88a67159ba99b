"""The pictures of the documentation, made from real runs: `make pictures`."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def asked_picture() -> None:
    """How one question was answered, as `convcoa ask --picture` draws it."""
    command = ["ask", CONVERSATION[0], "--docs", "demo", "--picture", str(STATIC / "asked.svg")]
    subprocess.run([sys.executable, "-m", "langgraph_convcoa", *command], check=True, capture_output=True)


BOXES = {  # name: (place, width, what it does)
    "recall": ((0, 0), 1.5, "relevant history"),
    "look": ((2.1, 0), 1.5, "no model call"),
    "plan": ((4.2, 0), 1.5, "1 model call"),
    "knowledge_retrieval": ((6.9, 0.9), 2.9, "one branch a sub-question"),
    "any other action": ((6.9, -0.9), 2.9, "all in parallel"),
    "verify": ((9.8, 0), 1.6, "no model call"),
    "repair": ((9.8, -2.1), 1.6, "0 or 1 model call"),
    "correct": ((12.4, -0.9), 1.6, "0 or 1 model call"),
    "answer": ((14.8, 0), 1.6, "no model call"),
    "remember": ((17.0, 0), 1.6, "knowledge set"),
    "approve": ((9.8, 2.3), 2.4, "a person, where asked for"),
}
ARROWS = [
    ("recall", "look", ""),
    ("look", "plan", ""),
    ("plan", "knowledge_retrieval", ""),
    ("plan", "any other action", ""),
    ("knowledge_retrieval", "verify", ""),
    ("any other action", "verify", ""),
    ("verify", "repair", "failed SQL"),
    ("repair", "any other action", ""),
    ("verify", "correct", "not supported"),
    ("verify", "answer", "all stands"),
    ("correct", "answer", ""),
    ("answer", "remember", ""),
]
APPROVED = ("plan", "verify")
"""Nodes from which a turn goes on by way of a person, where the settings ask for that."""


def turn_picture() -> None:
    """The nodes of a turn."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "turn"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(14.5, 4.6))
    for name, ((x, y), width, note) in BOXES.items():
        box = {"boxstyle": "round,pad=0.12", "facecolor": "#eef2fb", "edgecolor": "#4a6fb5"}
        axes.add_patch(mpl.patches.FancyBboxPatch((x - width / 2, y - 0.33), width, 0.66, **box))
        axes.text(x, y + 0.1, name, ha="center", va="center", fontsize=11, fontweight="bold", color="#1d2b45")
        axes.text(x, y - 0.2, note, ha="center", va="center", fontsize=8, color="#44546f")
    for start, end, label in ARROWS:
        (a, b), (wide, broad) = (BOXES[start][0], BOXES[end][0]), (BOXES[start][1], BOXES[end][1])
        forward = b[0] > a[0] + 0.1
        upright = abs(b[0] - a[0]) < 0.1
        tail = (a[0], a[1] - 0.45) if upright else (a[0] + (wide / 2 + 0.12) * (1 if forward else -1), a[1])
        head = (b[0], b[1] + 0.45) if upright else (b[0] - (broad / 2 + 0.12) * (1 if forward else -1), b[1])
        if not forward and not upright:
            head = (b[0], b[1] - 0.45)
        axes.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": "#4a6fb5", "lw": 1.4})
        axes.text(
            (tail[0] + head[0]) / 2,
            (tail[1] + head[1]) / 2 + 0.12,
            label,
            ha="left" if b[1] < a[1] else "center",
            fontsize=8,
            color="#44546f",
        )
    (x, y), wide, _ = BOXES["approve"]
    way = {"arrowstyle": "<|-|>", "color": "#8a94a8", "lw": 1.1, "linestyle": "--"}
    for name in APPROVED:
        (a, b), _, _ = BOXES[name]
        side = (a > x) - (a < x)
        corner = {"connectionstyle": "angle,angleA=0,angleB=90,rad=6"} if side else {}
        end = (x + side * (wide / 2 + 0.12), y - (0 if side else 0.45))
        axes.annotate("", (a, b + 0.45), end, arrowprops=way | corner)
    axes.set_xlim(-1, 18.0)
    axes.set_ylim(-2.7, 2.9)
    axes.axis("off")
    figure.savefig(STATIC / "turn.svg", bbox_inches="tight", metadata={"Date": None})


ASKED = (
    "When was the paper on the Hopfield network published, who introduced sparsemax, "
    "and who got the Nobel Prize in Physics with Hopfield?"
)
STEPS = (
    ("When was the paper on the Hopfield network published?", "1987"),
    ("Who introduced sparsemax?", "André Martins and Ramón Astudillo"),
    ("Who was awarded the Nobel Prize in Physics together with John Hopfield?", ""),
    ("Who directed the film about the prize?", ""),
)


def _reply(request: dict[str, Any]) -> str:
    """What a model might write: a plan with guesses, one of them wrong, and then what the evidence says."""
    prompt = json.dumps(request["messages"])
    if "Sub-questions:" not in prompt:
        chain = [
            {"action": "knowledge_retrieval", "sub": sub, "guess_answer": guess, "missing_flag": not guess}
            for sub, guess in STEPS
        ]
        return json.dumps({"optimized_question": ASKED, "chain": chain, "final_answer": ""})

    def shown(text: str) -> list[int]:
        """The number of the piece of evidence that says so."""
        before = prompt[: prompt.index(text)]
        return [int(re.findall(r"\\n\[(\d+)\]", before)[-1])]

    date, prize = shown("published in 1982"), shown("Geoffrey Hinton")
    answers = [
        {"index": 1, "answer": "1982", "evidence": date, "status": "supported"},
        {"index": 3, "answer": "Geoffrey Hinton", "evidence": prize, "status": "supported"},
        {"index": 4, "answer": "", "evidence": [], "status": "none"},
    ]
    final = (
        f"The paper on the Hopfield network was published in 1982 {date}. Sparsemax was introduced by André Martins and "
        f"Ramón Astudillo in 2016. The Nobel Prize in Physics was awarded to John Hopfield and Geoffrey Hinton {prize}."
    )
    return json.dumps({"answers": answers, "final_answer": final})


@contextmanager
def _serving(folder: str, *options: str) -> Iterator[str]:
    """`convcoa serve` over the demonstration, with a store of its own; its address."""
    command = [sys.executable, "-m", "langgraph_convcoa", "serve", "--docs", "demo", "--port", "0", *options]
    environment = {**os.environ, "XDG_DATA_HOME": folder, "OPENAI_API_KEY": "none"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            yield re.findall(r"http://\S+", server.stdout.readline())[0]
        finally:
            server.terminate()


def _save(picture: bytes, name: str) -> None:
    """A screenshot in as few colours as it needs, which is a third of its bytes."""
    from PIL import Image

    Image.open(io.BytesIO(picture)).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(STATIC / name, optimize=True)


def page_pictures() -> None:
    """The page: an answer beside its source, the chain of a turn, and a phone. What the model says in them is scripted."""
    from playwright.sync_api import sync_playwright

    from tests.openai_server import OpenAIServer

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        with _serving(folder) as url:
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            page.goto(url)
            for question in CONVERSATION:
                page.locator("#question").fill(question)
                page.keyboard.press("Enter")
                page.locator(".turn").nth(CONVERSATION.index(question)).locator(".foot-line").wait_for()
            page.locator("button.mark").first.click()
            page.locator("#panel mark").first.wait_for()
            _save(page.screenshot(), "page.png")
            phone = browser.new_page(viewport={"width": 360, "height": 740}, is_mobile=True, device_scale_factor=1.5)
            phone.goto(page.url)
            phone.locator("button.mark").first.click()
            phone.locator("#panel mark").first.wait_for()
            phone.wait_for_timeout(300)
            _save(phone.screenshot(), "page_phone.png")
        with OpenAIServer(_reply) as model:
            options = ("--model", "openai:scripted", "--base-url", model.base_url, "--graph")
            with _serving(folder, *options) as url:
                page = browser.new_page(viewport={"width": 1280, "height": 1000})
                page.goto(url)
                page.locator("#question").fill(ASKED)
                page.keyboard.press("Enter")
                page.locator(".foot-line .chain-button").click()
                page.locator("#panel .step").nth(len(STEPS) - 1).wait_for()
                page.mouse.move(0, 0)
                _save(page.screenshot(), "page_chain.png")
        browser.close()


if __name__ == "__main__":
    STATIC.mkdir(exist_ok=True)
    terminal_picture()
    asked_picture()
    turn_picture()
    page_pictures()
