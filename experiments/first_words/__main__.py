"""Time to our first verified sentence and to RAG's first token, on a simulated clock: `python -m experiments.first_words`.

A model writes the references of the data: half a second to the first token, then 50 tokens a second. Only it moves the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import tiktoken
from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from langgraph_convcoa.cli.documents import searched
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.evaluation.methods.prompting import REWRITE, Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Turn
from langgraph_convcoa.evaluation.reports import Table
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

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        self.now.calls += 1
        self.now.time += 0.5
        self.now.first = self.now.time + 0.02
        for token in _tokens(self._reply(messages[-1].text)):
            self.now.time += 0.02
            yield ChatGenerationChunk(message=AIMessageChunk(content=token))
            for _step in range(20):  # The reader of the stream has its turn before the clock moves on.
                await asyncio.sleep(0)

    def _reply(self, prompt: str) -> str:
        query = self.now.query
        values = {"optimized_question": query.rewrite or query.question, "chain": []}
        values["final_answer"] = re.sub(r"([.!?])(?=\s|$)", r" [1]\1", query.answer)
        if prompt.startswith(REWRITE):
            return str(values["optimized_question"])
        form = re.search(r"{.*}", prompt)  # The fields are written in the order of the prompt.
        fields = [name for name in re.findall(r'"(\w+)":', form[0]) if name in values] if form else []
        return json.dumps({name: values[name] for name in fields}) if fields else str(values["final_answer"])


def _tokens(text: str) -> list[str]:
    """The tokens of OpenAI's o200k_base; without its file, which is downloaded, runs of six letters and single signs."""
    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except OSError:
        return re.findall(r"\s*(?:[^\W\d_]{1,6}|\S)|\s+", text)
    starts = encoding.decode_with_offsets(encoding.encode(text, disallowed_special=()))[1]
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


async def measure(dataset: Dataset, retriever: HopfieldRetriever, count: int) -> Table:
    """Ask both methods `count` questions; the table counts the turns of ours with one call."""
    now = SimpleNamespace()
    model = ReferenceModel(now=now)
    graph: Any = build_graph(model=model, retriever=retriever).compile()
    rag = make_method("history-aware-rag", Kit(model, retriever))
    queries = [query for query in dataset.queries if query.answer]
    rows: list[tuple[bool, int, float, float]] = []
    for query in queries[:: max(1, len(queries) // count)][:count]:
        vars(now).update(query=query, time=0.0, calls=0, shown=0.0)
        said = [message for pair in query.history for message in zip(("user", "assistant"), pair, strict=True)]
        async for piece, _ in graph.astream({"messages": [*said, ("user", query.question)]}, stream_mode="messages"):
            now.shown = now.shown or now.time * bool(piece.text.strip())
        calls, now.time = now.calls, 0.0
        await rag.ainvoke(Turn(query.id, query.id, query.question, query.history))
        rows.append((bool(query.history), calls, now.shown, now.first))
    return Table("First words", _COLUMNS, [_row("with history", [one for one in rows if one[0]]), _row("all", rows)])


_COLUMNS = ("turns", "asked", "one call", "our first sentence (s)", "RAG's first token (s)", "ours comes first")


def _row(name: str, rows: Sequence[tuple[bool, int, float, float]]) -> list[str]:
    single = [(ours, rag) for _, calls, ours, rag in rows if calls == 1]
    means = [f"{sum(times) / len(single):.2f}" for times in zip(*single, strict=True)] or ["-", "-"]
    return [name, str(len(rows)), str(len(single)), *means, f"{sum(ours < rag for ours, rag in single)}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.first_words")
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl, with answers")
    parser.add_argument("--questions", type=int, default=40, help="number of questions (default: 40)")
    given = parser.parse_args(arguments)
    dataset = load_dataset(given.data)
    print(asyncio.run(measure(dataset, searched(dataset, None, None), given.questions)).markdown())


if __name__ == "__main__":
    main()
