"""Peak memory of a run with a model that answers at once: `python -m tests.evaluation.runs.memory [QUESTIONS] [METHODS]`."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langgraph_convcoa.evaluation.qa import RunPlan, evaluate_methods
from tests.bounds import kilobytes
from tests.fake_encoder import WordEncoder
from tests.fakes import corrections, node, plan

TURNS = 10
PASSAGES = 500


class Instant(BaseChatModel):
    """Answers the last number that is asked for, in whatever form it is asked."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        prompt = messages[-1].text
        number = (re.findall(r"number (\d+)\?", prompt) or ["0"])[-1]
        if '"optimized_question"' in prompt:
            text = plan(node(f"What is number {number}?"), optimized=f"What is number {number}?")
        elif '"answers"' in prompt:
            text = corrections(f"It is {number}.", final=f"It is {number} [1].")
        else:
            text = f"It is {number} [1]. " + "So much for that. " * 10
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


def write_data(folder: Path, questions: int) -> None:
    """Conversations with their histories, and passages."""
    with (folder / "corpus.jsonl").open("w") as file:
        for n in range(PASSAGES):
            file.write(
                json.dumps({"id": f"p{n}", "title": f"{n}", "text": f"Number {n} is {n}. " + "It is a number. " * 30}) + "\n"
            )
    history: list[list[str]] = []
    with (folder / "queries.jsonl").open("w") as file:
        for n in range(questions):
            if n % TURNS == 0:
                history = []
            row = {
                "id": f"q{n}",
                "question": f"What is number {n}?",
                "answer": f"{n}",
                "history": history,
                "gold": [f"p{n % PASSAGES}"],
                "split": "dev",
                "conversation_id": f"c{n // TURNS}",
            }
            file.write(json.dumps(row) + "\n")
            history = [*history, [row["question"], row["answer"]]]


def peak_gb() -> float:
    """The most memory that this process held."""
    return kilobytes("VmHWM") / 2**20


def main(questions: int, methods: tuple[str, ...]) -> None:
    """Run, and print what it took as JSON."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        data.mkdir()
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
