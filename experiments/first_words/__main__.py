"""Time to our first verified sentence and to RAG's first token, on a simulated clock: `python -m experiments.first_words`.

A model writes the references of the data: half a second to the first token, then 50 tokens a second. Only it moves the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import tiktoken
from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from langgraph_convcoa.cli.documents import searched
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.evaluation.methods.prompting import REWRITE, Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Turn
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever


class ReferenceModel(BaseChatModel):
    """Answers with the reference of the query. Copies of the model share `now`: the query, the time and the calls."""

    now: Any
    _llm_type = "reference"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))

    async def _astream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        vars(self.now).update(calls=self.now.calls + 1, time=self.now.time + 0.5, first=self.now.time + 0.52)
        for token in _tokens(self._reply(messages[-1].text)):
            self.now.time += 0.02
            yield ChatGenerationChunk(message=AIMessageChunk(content=token))
            for _step in range(20):  # The reader of the stream has its turn before the clock moves on.
                await asyncio.sleep(0)

    def _reply(self, prompt: str) -> str:
        question, answer = self.now.query.rewrite, re.sub(r"([.!?])(?=\s|$)", r" [1]\1", self.now.query.answer)
        if prompt.startswith(REWRITE):
            return str(question)
        values = {"optimized_question": question, "chain": [], "final_answer": answer}
        form = re.search(r"{.*}", prompt)  # The fields are written in the order of the prompt.
        fields = [name for name in re.findall(r'"(\w+)":', form[0]) if name in values] if form else []
        return json.dumps({name: values[name] for name in fields}) if fields else answer


def _tokens(text: str) -> list[str]:
    """Tokens of OpenAI's o200k_base. If its file cannot be downloaded: runs of up to six letters, and single signs."""
    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except OSError:
        return re.findall(r"\s*(?:[^\W\d_]{1,6}|\S)|\s+", text)
    starts = encoding.decode_with_offsets(encoding.encode(text, disallowed_special=()))[1]
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


async def measure(dataset: Dataset, retriever: HopfieldRetriever, count: int) -> list[tuple[bool, int, float, float]]:
    """For each of `count` questions: whether it has a history, our calls, and the seconds of ours and of RAG."""
    now = SimpleNamespace()
    model, rows = ReferenceModel(now=now), []
    graph: Any = build_graph(model=model, retriever=retriever).compile()
    rag = make_method("history-aware-rag", Kit(model, retriever))
    queries = [query for query in dataset.queries if query.answer and query.rewrite]
    for query in queries[:: max(1, len(queries) // count)][:count]:
        vars(now).update(query=query, time=0.0, calls=0, shown=0.0)
        said = [message for pair in query.history for message in zip(("user", "assistant"), pair, strict=True)]
        async for piece, _ in graph.astream({"messages": [*said, ("user", query.question)]}, stream_mode="messages"):
            now.shown = now.shown or now.time * bool(piece.text.strip())
        calls, now.time = now.calls, 0.0
        await rag.ainvoke(Turn(query.id, query.id, query.question, query.history))
        rows.append((bool(query.history), calls, now.shown, now.first))
    return rows


def main() -> None:
    """Print the means over the turns that ours answers in one call."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.first_words")
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl, with answers")
    parser.add_argument("--questions", type=int, default=40, help="number of questions (default: 40)")
    given = parser.parse_args()
    dataset = load_dataset(given.data)
    rows = asyncio.run(measure(dataset, searched(dataset, None, None), given.questions))
    for name, later in (("With history", True), ("First questions", False)):
        times = [(ours, rag) for history, calls, ours, rag in rows if history == later and calls == 1]
        ours, rag = np.mean(times, axis=0) if times else (0.0, 0.0)
        early = sum(one < other for one, other in times)
        print(f"{name}: {len(times)} answers with one call. Our first sentence {ours:.2f} s, RAG's first token {rag:.2f} s.")
        print(f"Ours comes first in {early} of {len(times)}.")


if __name__ == "__main__":
    main()
