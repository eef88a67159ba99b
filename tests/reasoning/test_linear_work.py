"""Work on what models write grows with its length and no faster, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import re
import time
import timeit
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

import langgraph_convcoa
from langgraph_convcoa import build_graph
from langgraph_convcoa.nodes.answer import finish
from langgraph_convcoa.reasoning.parsing import parse_chain, parse_corrections
from langgraph_convcoa.reasoning.streaming import AnswerStream, SentenceGate
from langgraph_convcoa.text.clean import LONGEST_ANSWER
from langgraph_convcoa.verification.answer_check import Checker
from tests.fakes import WORDS, KeywordRetriever, ScriptedModel

ROOMS = ("text", "reasoning", "nodes", "verification", "memory", "errors.redaction", "storage.thread_export", "cli.console")
SHORT = ("reasoning.extractive.compound", "reasoning.extractive.coverage", "reasoning.extractive.reasoner")
"""Of these the texts are cut to 2,000 characters and less before."""
ANCHORED = ("_LEADING_MARKS", "_LIST_NUMBER", "_TAIL", "_PLEASANTRY", "_OFFER", "_CONTRAST", "_SILENCE")
"""Only matched at one place, or on sentences of bounded length with single spaces."""
PIECES = [
    *(" ", "\n", "1", "0", "a", "A", ",", ".", "[", "(", '"', "'", "*", "-", "|", "\\", "[1", "[1,", "1 ", "a ", "A ", "a. "),
    *("“", "’", "é", "中", "[1]", " [1]", "a-", "_", "**", "[a](", "and ", "not ", "twenty ", "hundred "),
    *("the X ", "no ", "; ", "https://a/", "! ", "\x1b[", "<think>", "0a", "$", "1/", "x's ", "# ", "what ", "one million "),
]
SIZE = 8_000
SECONDS = 30.0
"""Far above what any reply takes; what is quadratic takes minutes at the longest answer."""


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for module in pkgutil.walk_packages(langgraph_convcoa.__path__, "langgraph_convcoa."):
        name = module.name.removeprefix("langgraph_convcoa.")
        if name.startswith(ROOMS) and not name.startswith(SHORT):
            for key, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern) and key not in ANCHORED:
                    yield f"{name}.{key}", value


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pattern"), list(patterns()), ids=lambda value: value if isinstance(value, str) else "")
def test_no_pattern_takes_more_than_linear_time(name: str, pattern: re.Pattern[str]) -> None:
    for piece in PIECES:
        # Four times the text takes four times as long, sixteen times if the work is quadratic; what is fast passes.
        long = least_time(pattern, piece * (SIZE // len(piece)) + "x")
        assert long < 0.02 or long < 9 * least_time(pattern, piece * (SIZE // 4 // len(piece)) + "x"), (name, piece)


def least_time(pattern: re.Pattern[str], text: str) -> float:
    return min(timeit.repeat(lambda: pattern.sub("", text), timer=time.thread_time, number=1, repeat=3))


def replies(n: int) -> dict[str, str]:
    """Replies of about n characters, each of which once took minutes."""

    def answer(text: str) -> str:
        return json.dumps({"optimized_question": "q", "chain": [], "final_answer": text})

    answers = {
        "blanks": "It was " + " " * n + "1982.",
        "digits": "1" * n,
        "commas": "," * n + "a",
        "newlines": "a" + "\n" * n + "b",
        "an open mark": "[" + "1" * n,
        "open marks": "[1" * (n // 2),
        "one word": "a" * n,
        "dots": "a" + "." * n,
        "names": "Ada Lovelace " * (n // 13),
        "exclamations": "Hm! " * (n // 4),
        "quotes": "“" * n,
        "marks": "It was [1]" * (n // 10),
        "negations": "not " * (n // 4),
        "numbers": "1,234 " * (n // 6),
        "lines": "- a b\n" * (n // 6),
        "emoji": "😀. " * (n // 3),
        "ideographs": "中" * n,
        "control characters": "a\x00\x1b" * (n // 3),
        "money": "$1.5 million " * (n // 13),
        "silence": "the documents do not say that " * (n // 30),
        "polar": "no" + "[1 ]" * (n // 4) + "x",
    }
    broken = {
        "open quotes": '{"chain":' + '"' * n,
        "quotes in a text": '{"final_answer":"' + '"x' * (n // 2),
        "brackets": '{"a":' + "[" * n,
        "braces": '{"a":' + "{" * n,
        "digits in a list": "[" + "1" * n,
        "comments": '{"a":' + '"/*' * (n // 3),
        "nesting": '{"chain":' + "[" * 600 + "]" * 600 + "}",
        "a thought": "<think>" + "a<" * (n // 2),
        "backslashes": '{"chain": [], "final_answer": "' + "\\" * n,
        "half characters": '{"chain": [], "final_answer": "' + "\\ud83d" * (n // 6),
        "pairs": '["a"' + ' "b"' * (n // 4),
        "words": "word " * (n // 5),
        "mixed": '["]true}{`' * (n // 10),
        "colons": "{" + '"a":' * (n // 4),
        "unclosed lists": '{"a":["b":' * (n // 10),
    }
    return {name: answer(text) for name, text in answers.items()} | broken


EVIDENCE = [Document("John Hopfield described the Hopfield network in 1982.", id="a"), Document("It stores patterns.", id="b")]


def read_whole(reply: str) -> None:
    chain = parse_chain(reply, question="q", actions=["docs"])
    parse_corrections(reply)
    finish(chain.draft_answer if chain else "", [], Checker(EVIDENCE, [], WORDS))


def read_streamed(reply: str) -> None:
    stream = AnswerStream(SentenceGate(Checker(EVIDENCE, [], WORDS), lambda *_: None), whole_answer=True)
    for place in range(0, len(reply), 4):
        stream.feed(reply[place : place + 4])
    stream.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", replies(8))
@pytest.mark.parametrize("work", [read_whole, read_streamed])
def test_twice_the_reply_is_at_most_three_times_the_work(name: str, work: Callable[[str], None]) -> None:
    made = [replies(n)[name] for n in (4_000, 8_000)]
    one, two = (timeit.timeit(lambda reply=reply: work(reply), timer=time.thread_time, number=1) for reply in made)
    assert two < 3 * one + 0.2, (one, two)
    assert two < SECONDS


class Streaming(ScriptedModel):
    """A model that streams a long reply in some tens of pieces."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        text = self._next(args[0])
        size = max(4, len(text) // 60)
        for start in range(0, len(text), size):
            yield ChatGenerationChunk(message=AIMessageChunk(text[start : start + size]))


async def held_up(reply: str, *, streamed: bool) -> tuple[float, dict[str, Any]]:
    """The most processor time that the loop's own thread takes between two beats of a turn, and the turn's output."""
    graph = build_graph(model=Streaming(by_prompt=lambda _: reply), retriever=KeywordRetriever()).compile()
    longest, output = 0.0, {}

    async def beat() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0.002)

    beating = asyncio.create_task(beat())
    modes: list[Any] = ["values", "messages"] if streamed else ["values"]
    async for mode, part in graph.astream({"question": "Who described the Hopfield network?"}, stream_mode=modes):
        if mode == "values":
            output = part
    beating.cancel()
    return longest, output


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
def test_no_reply_holds_up_the_event_loop(streamed: bool) -> None:
    asyncio.run(held_up(json.dumps({"chain": [], "final_answer": "It was 1982."}), streamed=streamed))
    for name, reply in replies(12_000).items():
        longest, output = asyncio.run(held_up(reply, streamed=streamed))
        assert longest < 0.1, name
        assert output["answer"], name


@pytest.mark.slow
def test_an_answer_of_ten_megabytes_is_cut_and_says_so() -> None:
    reply = json.dumps({"optimized_question": "q", "chain": [], "final_answer": "I see. " * 1_500_000})
    start = time.process_time()
    _, output = asyncio.run(held_up(reply, streamed=False))
    assert time.process_time() - start < SECONDS
    assert len(output["answer"]) <= LONGEST_ANSWER
