"""What a turn costs beyond its model and its actions, which answer at once: `make bench`."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver
from pytest_benchmark.fixture import BenchmarkFixture

from langgraph_convcoa import build_graph
from langgraph_convcoa.actions.base import ActionRequest
from tests.fakes import FACTS, ScriptedModel, node, plan

FILLER = " ".join(
    f"Sentence {n} of this passage tells of networks, patterns, queries and the {1900 + n} experiments." for n in range(8)
)
SUBS = {
    "When was the Hopfield network described?": "John Hopfield described the Hopfield network in 1982.",
    "Who introduced sparsemax?": "Sparsemax was introduced by Martins and Astudillo in 2016.",
    "Who published dense passage retrieval?": "Dense passage retrieval was published by Karpukhin and colleagues in 2020.",
    "Who won the Nobel Prize in Physics 2024?": "The Nobel Prize in Physics 2024 went to John Hopfield and Geoffrey Hinton.",
}


class Instant:
    """Five passages of about a hundred words, at once."""

    name = "instant"
    description = "finds everything at once"
    looks_first = True

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        return [Document(f"{fact} {FILLER}", id=id_, metadata={"quote": fact}) for id_, fact in FACTS.items()] + [
            Document(FILLER, id="filler", metadata={"quote": FILLER[:80]})
        ]


CHAIN = plan(*(node(sub, guess, action="instant") for sub, guess in SUBS.items()), final=" ".join(SUBS.values()))


def graph(action: Any, saver: InMemorySaver | None = None) -> Any:
    return build_graph(model=ScriptedModel(by_prompt=lambda prompt: CHAIN), actions=[action]).compile(checkpointer=saver)


@pytest.mark.benchmark(group="turn")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_a_turn_of_four_sub_questions(benchmark: BenchmarkFixture, stored: bool, asynchronous: bool) -> None:
    compiled, counter = graph(Instant(), InMemorySaver() if stored else None), itertools.count()
    with asyncio.Runner() as runner:

        def turn() -> dict[str, Any]:
            asked: Any = {"question": "All four?"}, {"configurable": {"thread_id": str(next(counter) // 5)}}
            return dict(runner.run(compiled.ainvoke(*asked)) if asynchronous else compiled.invoke(*asked))

        out = benchmark.pedantic(turn, rounds=100, warmup_rounds=5)
    assert stored or [item["status"] for item in out["chain"]] == ["kept"] * 4
    assert out["usage"]["llm_calls"] == 1
