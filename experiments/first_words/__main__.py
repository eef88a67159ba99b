"""First words on a simulated clock, and tokens by kind: `python -m experiments.first_words DATA`.

A model writes the references of the data in the form that each method asks for. It takes half a second to its first token and
then writes 50 tokens a second. Only the model moves the clock. The turn runs in the graph, and is read from its stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import tiktoken
from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableParallel, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_openai_tool

from langgraph_convcoa.cli.documents import searched
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.evaluation.methods.prompting import REACT, REWRITE, Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Turn
from langgraph_convcoa.evaluation.reports import Table
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.text.words import content_words, sentences
from langgraph_convcoa.verification.answer_check import with_marks

KINDS = ("instructions", "history", "evidence", "tools", "schema", "reply")
_WAIT, _PACE = 0.5, 0.02
_PASSAGE = re.compile(r"^\[(\d+)\] (.*?)(?=^\[\d+\] |^</evidence|\Z)", re.MULTILINE | re.DOTALL)
_PARTS = re.compile(
    r"(?P<evidence><(evidence-\w+)>.*?</\2>|^Observation \d+: .*?(?=^Thought |\Z))|^Actions:\n(?P<tools>.*?)\n\n"
    r"|^Conversation(?: so far:| \([^\n]*:)\n(?P<history>.*?)\n\n",
    re.MULTILINE | re.DOTALL,
)


def pieces(text: str) -> list[str]:
    """The tokens of a text: those of OpenAI's o200k_base, or runs of six letters or three digits, and single signs."""
    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except OSError:  # Its file is downloaded at the first use.
        return re.findall(r"\s*(?:[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_)|\s+", text)
    starts = encoding.decode_with_offsets(encoding.encode(text, disallowed_special=()))[1]
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


@dataclass
class Progress:
    """What a model did for the question that is asked: the time, the time of the last first token, calls, tokens by kind."""

    asked: Query = Query("", "")
    clock: float = 0.0
    first: float = 0.0
    calls: int = 0
    tokens: Counter[str] = field(default_factory=Counter)


class ReferenceModel(BaseChatModel):
    """Answers with the reference of the question that is asked. Copies of a model share its progress."""

    progress: Any

    _llm_type = "reference"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, Any]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def with_structured_output(self, schema: Any, **_: Any) -> Runnable[Any, Any]:
        return RunnableParallel(raw=self.bind(response_format=schema)) | RunnablePassthrough()

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, **options))

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        called = bool(options.get("tools")) and not isinstance(messages[-1], ToolMessage)
        reply = json.dumps({"query": self.progress.asked.rewrite}) if called else self._reply("\n".join(one.text for one in messages))
        self._count(messages, options)
        self.progress.tokens["reply"] += len(pieces(reply))
        self.progress.calls, self.progress.clock = self.progress.calls + 1, self.progress.clock + _WAIT
        self.progress.first = self.progress.clock + _PACE
        for n, piece in enumerate(pieces(reply)):
            self.progress.clock += _PACE
            if called:
                name, id_ = (None, None) if n else ("search_documents", str(self.progress.calls))
                call = tool_call_chunk(name=name, args=piece, id=id_, index=0)
                yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[call]))
            else:
                yield ChatGenerationChunk(message=AIMessageChunk(piece))
            for _ in range(20):  # The reader of the stream has its turn before the clock moves on.
                await asyncio.sleep(0)

    def _reply(self, text: str) -> str:
        full = self.progress.asked.rewrite or self.progress.asked.question
        passages = [(int(number), set(content_words(passage))) for number, passage in _PASSAGE.findall(text)]
        answer = ""
        for one in sentences(self.progress.asked.answer):
            words = set(content_words(one.text))
            number, shared = max(((n, len(words & own)) for n, own in passages), key=lambda found: found[1], default=(0, 0))
            answer += f" {with_marks(one.text, [number] if shared else [])}"
        answer = answer.strip()
        if text.startswith(REWRITE):
            return full
        if text.startswith(REACT):
            done = text.rfind("\nObservation") > text.rfind("Question: ")
            return f"I can answer now.\nAction 2: Finish[{answer}]" if done else f"I must search.\nAction 1: Search[{full}]"
        if draft := re.findall(r"^\((\d+)\) (.+)$", text.rpartition("Answer:\n")[2] if "Check sentences" in text else "", re.MULTILINE):
            answers = [{"index": int(n), "answer": one, "evidence": [1], "status": "supported"} for n, one in draft]
            return json.dumps({"answers": answers})
        if '"chain"' in text:
            values = {"optimized_question": full, "chain": [], "final_answer": answer}
            return json.dumps({key: values[key] for key in sorted(values, key=lambda key: text.find(f'"{key}"'))}, ensure_ascii=False)
        return answer

    def _count(self, messages: Sequence[BaseMessage], options: dict[str, Any]) -> None:
        """Add the tokens of a prompt to their kinds."""
        for kind, given in (("tools", options.get("tools")), ("schema", options.get("response_format"))):
            self.progress.tokens[kind] += len(pieces(json.dumps(given))) if given else 0
        asked = max((n for n, one in enumerate(messages) if isinstance(one, HumanMessage)), default=0)
        for n, one in enumerate(messages):
            if options.get("tools") and one.type != "system" and n != asked:
                self.progress.tokens["evidence" if one.type == "tool" else "history"] += len(pieces(one.text))
                continue
            found = [(kind, text) for part in _PARTS.finditer(one.text) for kind, text in part.groupdict().items() if text]
            for kind, text in found:
                self.progress.tokens[kind] += len(pieces(text))
                self.progress.tokens["instructions"] -= len(pieces(text))
            self.progress.tokens["instructions"] += len(pieces(one.text))


async def measure(data: str, count: int, methods: Sequence[str]) -> list[Table]:
    """Ask every method `count` questions of a data set; returns the tables of first words and of tokens."""
    dataset = load_dataset(data)
    asked = [one for one in dataset.queries if one.answer]
    asked = asked[:: max(1, len(asked) // count)][:count]
    progress = Progress()
    model, retriever = ReferenceModel(progress=progress), searched(dataset, None, None)
    graph, kit = build_graph(model=model, retriever=retriever).compile(), Kit(model, retriever)
    made = {name: make_method(name, kit) for name in methods}
    early: dict[bool, list[tuple[float, float, int]]] = {True: [], False: []}
    used: dict[str, list[tuple[int, Counter[str]]]] = {}
    for one in asked:
        turn = Turn(one.id, one.id, one.question, tuple(one.history))
        times = {}
        for name in ("ours", *methods):
            vars(progress).update(asked=one, clock=0.0, calls=0, tokens=Counter())
            shown = 0.0
            if name == "ours":
                said = [pair for question, reply in one.history for pair in (("user", question), ("assistant", reply))]
                stream = graph.astream({"messages": [*said, ("user", one.question)]}, stream_mode="messages")
                async for piece, _ in stream:
                    shown = shown or (progress.clock if piece.text.strip() else 0.0)
            else:
                await made[name].ainvoke(turn)
            times[name] = shown or progress.first
            used.setdefault(name, []).append((progress.calls, progress.tokens))
        early[bool(one.history)].append((times["ours"], times.get("history-aware-rag", 0.0), used["ours"][-1][0]))
    return [_first_words(early), _tokens(used)]


def _first_words(early: dict[bool, list[tuple[float, float, int]]]) -> Table:
    rows = []
    for name, found in (("with history", early[True]), ("first question", early[False]), ("all", early[True] + early[False])):
        single = [(ours, rag) for ours, rag, calls in found if calls == 1]
        mean = [f"{sum(times) / max(len(single), 1):.2f}" for times in (zip(*single, strict=True) if single else ((), ()))]
        rows.append([name, str(len(found)), str(len(single)), *mean, str(sum(ours < rag for ours, rag in single))])
    columns = ("turns", "asked", "answered in one call", "ours, first sentence (s)", "RAG, first token (s)", "ours first")
    return Table("First words", columns, rows)


def _tokens(used: dict[str, list[tuple[int, Counter[str]]]]) -> Table:
    rows = []
    for name, turns in used.items():
        means = [sum(tokens[kind] for _, tokens in turns) / len(turns) for kind in KINDS]
        rows.append([name, f"{sum(calls for calls, _ in turns) / len(turns):.2f}", *(f"{n:,.0f}" for n in (*means, sum(means)))])
    return Table("Tokens a question", ("method", "calls", *KINDS, "total"), rows)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.first_words")
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl, with answers")
    parser.add_argument("--questions", type=int, default=40, help="number of questions (default: 40)")
    parser.add_argument("--methods", default="history-aware-rag,react,agent,agent-verified", help="beside ours (%(default)s)")
    given = parser.parse_args()
    for table in asyncio.run(measure(given.data, given.questions, given.methods.split(","))):
        print(f"{table.markdown()}\n")


if __name__ == "__main__":
    main()
