"""Turns a second of conversations side by side, and the memory of many turns with long evidence: `make bench-load`.

The model and the actions answer at once, so that the time is the library's own. PYTHONPATH chooses the version that is
measured; on a machine that others use too, versions are compared by runs in alternation:

    for version in before after before after; do PYTHONPATH=$version python $PWD/tests/benchmarks/load.py turns; done
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import ActionRequest, build_graph

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Instant(BaseChatModel):
    """Plans one look-up, which is answered by its guess."""

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
        answer = "John Hopfield described the Hopfield network in 1982."
        step = {"action": "instant", "sub": "When was it described?", "guess_answer": answer, "missing_flag": False}
        plan = {"optimized_question": "When was it described?", "chain": [step], "final_answer": answer}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(json.dumps(plan)))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages)


class Evidence:
    """One document of so many characters, another one each time."""

    name = "instant"
    description = "finds everything at once"

    def __init__(self, characters: int) -> None:
        self.characters, self.asked = characters, 0

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        self.asked += 1
        n, text = self.asked, "John Hopfield described the Hopfield network in 1982. "
        words = [
            f"Sentence {i} of page {n} tells of the city of Place{n * 7 % 9973} and of {i * n % 10_007} patterns. "
            for i in range(12)
        ]
        text += "".join(words) * (self.characters // sum(map(len, words)) + 1)
        return [Document(text[: self.characters], id=f"d{n}", metadata={"source": f"page {n}"})]


def megabytes() -> float:
    """What this process holds in memory now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES / 1e6


async def turns(conversations: int, seconds: float, characters: int) -> dict[str, float]:
    """Turns a second of so many conversations at once, each with a thread of its own that begins anew after five turns."""
    graph = build_graph(model=Instant(), actions=[Evidence(characters)]).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({"question": "When?"}, {"configurable": {"thread_id": "warm"}})
    done = 0
    start = time.perf_counter()

    async def converse(name: int) -> None:
        nonlocal done
        turn = 0
        while time.perf_counter() - start < seconds:
            out = await graph.ainvoke({"question": f"When, {turn}?"}, {"configurable": {"thread_id": f"{name}-{turn // 5}"}})
            assert "1982" in out["answer"]
            turn, done = turn + 1, done + 1

    await asyncio.gather(*map(converse, range(conversations)))
    return {"conversations": conversations, "turns": done, "turns_per_second": done / (time.perf_counter() - start)}


async def memory(count: int, characters: int) -> dict[str, Any]:
    """Memory after each tenth of so many turns without a store."""
    graph = build_graph(model=Instant(), actions=[Evidence(characters)]).compile()
    held = []
    for n in range(count):
        await graph.ainvoke({"question": f"When, {n}?"})
        if (n + 1) % max(count // 10, 1) == 0:
            held.append(round(megabytes()))
    return {
        "turns": count,
        "characters": characters,
        "megabytes": held,
        "growth_of_the_last_half": held[-1] / held[len(held) // 2 - 1],
    }


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["turns", "memory"])
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--characters", type=int)
    given = parser.parse_args()
    if given.what == "turns":
        print(json.dumps(asyncio.run(turns(given.conversations, given.seconds, given.characters or 1_000))))
    else:
        print(json.dumps(asyncio.run(memory(given.turns, given.characters or 50_000))))


if __name__ == "__main__":
    main()
