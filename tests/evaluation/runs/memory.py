"""Peak memory of a run with a model that answers at once: `python -m tests.evaluation.runs.memory [QUESTIONS] [METHODS]`."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.evaluation.qa import RunPlan, evaluate_methods
from tests.bounds import kilobytes
from tests.data import write_dataset
from tests.fake_encoder import WordEncoder
from tests.fakes import ScriptedModel, corrections, node, plan

TURNS = 10
PASSAGES = 500


def answer(prompt: str) -> str:
    """The last number that is asked for, in whatever form it is asked."""
    number = (re.findall(r"number (\d+)\?", prompt) or ["0"])[-1]
    if '"optimized_question"' in prompt:
        return plan(node(f"What is number {number}?"), optimized=f"What is number {number}?")
    if '"answers"' in prompt:
        return corrections(f"It is {number}.", final=f"It is {number} [1].")
    return f"It is {number} [1]. " + "So much for that. " * 10


class Instant(ScriptedModel):
    """Answers at once and keeps nothing."""

    def _next(self, messages: list[BaseMessage]) -> str:
        return answer(messages[-1].text)


def write_data(folder: Path, questions: int) -> None:
    """Conversations with their histories, and passages."""
    asked = [(f"What is number {n}?", f"{n}") for n in range(questions)]
    queries = (
        Query(
            f"q{n}", *asked[n][:1], tuple(asked[n - n % TURNS : n]), (f"p{n % PASSAGES}",), "", f"{n}", "dev", f"c{n // TURNS}"
        )
        for n in range(questions)
    )
    texts = (f"Number {n} is {n}. " + "It is a number. " * 30 for n in range(PASSAGES))
    write_dataset(folder, queries, (Document(text, id=f"p{n}", metadata={"title": f"{n}"}) for n, text in enumerate(texts)))


def peak_gb() -> float:
    """The most memory that this process held."""
    return kilobytes("VmHWM") / 2**20


def main(questions: int, methods: tuple[str, ...]) -> None:
    """Run, and print what it took as JSON."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        write_data(data, questions)
        before, start = peak_gb(), time.perf_counter()
        settings = RunPlan(data=data, model=Instant(), methods=methods, sample=None, out=Path(name) / "run")
        report = evaluate_methods(settings, encoder=WordEncoder(), progress=False)
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in (Path(name) / "run").iterdir()) / 2**20
    found = {
        "answered": report.answered,
        "failed": sum(one.failed for one in report.methods),
        "seconds": round(seconds, 1),
        "gb_before": round(before, 3),
        "gb": round(peak_gb(), 3),
        "folder_mb": round(size, 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 10_000,
        tuple(sys.argv[2].split(",")) if len(sys.argv) > 2 else ("closed-book", "history-aware-rag"),
    )
