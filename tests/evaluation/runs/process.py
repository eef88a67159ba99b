"""A run in a process of its own, which a test may kill."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from experiments.baselines.methods import ALL_METHODS
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.evaluation.qa import RunPlan, evaluate_methods
from langgraph_convcoa.evaluation.runs.run import RunSettings
from tests.data import write_dataset
from tests.fake_encoder import WordEncoder
from tests.fakes import corrections, direct, node, plan
from tests.openai_server import Reply, kind_of, prompt_of

METHODS = ("closed-book", "self-consistency", "ours", "ours-without-draft")
CONVERSATIONS = 6
TURNS = 3
CONCURRENCY = 3


def write_data(folder: Path) -> Path:
    """Conversations about the things of a made-up list."""
    corpus, queries = [], []
    for c in range(CONVERSATIONS):
        said: tuple[tuple[str, str], ...] = ()
        for t in range(TURNS):
            question, answer = f"When was thing {c}-{t} found?", f"{1000 + 10 * c + t}"
            corpus.append(Document(f"Thing {c}-{t} was found in {answer}.", id=f"p{c}-{t}", metadata={"title": f"{c}-{t}"}))
            queries.append(Query(f"q{c}-{t}", question, said, (f"p{c}-{t}",), "", answer, "dev", f"c{c}"))
            said = (*said, (question, answer))
    return write_dataset(folder, queries, corpus, ".jsonl.gz")


def place_of(body: dict[str, Any]) -> tuple[str, str]:
    """Conversation and turn that a request is made for."""
    conversation, turn = re.findall(r"thing (\d+)-(\d+) found\?", prompt_of(body))[-1]
    return conversation, turn


def is_judged(body: dict[str, Any]) -> bool:
    """Whether a request is the judge's."""
    return "[Reference]" in prompt_of(body)


def script(body: dict[str, Any]) -> Reply:
    """Replies that depend on the prompt alone; some fail."""
    if is_judged(body):
        marks = '{"correct": 2, "complete": 2, "faithful": 2, "concise": 1, "better": "A"}'
        return Reply(marks, delay=0.02)
    conversation, turn = place_of(body)
    question, answer = f"When was thing {conversation}-{turn} found?", f"{1000 + 10 * int(conversation) + int(turn)}"
    kind = kind_of(body)
    written = f"Thing {conversation}-{turn} was found in {answer} [1]."
    if conversation == "4" and turn == "1" and kind == "plan":
        return Reply("broken", status=500, delay=0.02)
    if kind == "correct":
        said = corrections(answer, final=written)
    elif kind == "confirm":
        said = corrections(written)
    elif kind == "plan":
        said = direct(written, question) if int(turn) % 2 else plan(node(question), optimized=question)
    else:
        said = f"So the answer is {answer}."
    return Reply(said, delay=0.02)


def run(data: str, out: str, base_url: str, model: str, key: str) -> None:
    """Run all methods with an API key."""
    os.environ["OPENAI_API_KEY"] = key
    settings = RunPlan(
        data=data,
        model=model,
        base_url=base_url,
        methods=METHODS,
        out=out,
        run=RunSettings(concurrency=CONCURRENCY),
        judge=model,
    )
    evaluate_methods(settings, methods=ALL_METHODS, encoder=WordEncoder(), progress=False)
