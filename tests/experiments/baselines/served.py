"""A method asked over HTTP on loopback, by the model of a script, and what it cost."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI

from experiments.baselines.methods import ALL_METHODS
from experiments.costs.scripted import Script
from experiments.costs.scripted_model import ScriptedServer
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Outcome, Turn
from langgraph_convcoa.usage import UsageCounter

ASKING = [name for name, one in ALL_METHODS.items() if one.asks]
"""The methods that ask a model."""
SAMPLES = 3


@dataclass
class Asked:
    """One question: its outcome, and the calls as the server and as callbacks count them."""

    outcome: Outcome
    requests: int
    calls: int
    input_tokens: int
    searches: int


class Searches(BaseCallbackHandler):
    run_inline = True

    def __init__(self) -> None:
        self.count = 0

    def on_retriever_start(self, *args: Any, **kwargs: Any) -> None:
        self.count += 1


class MalformedServer(ScriptedServer):
    """Gives a share of its replies, drawn by the request's text, in no form that a method knows."""

    def __init__(self, script: Script, share: float) -> None:
        super().__init__(script)
        self._share = share

    def reply(self, messages: Sequence[tuple[str, str]]) -> str:
        drawn = int.from_bytes(hashlib.sha256(f"3 malformed {json.dumps(messages)}".encode()).digest()[:6], "big") / 2**48
        return "Hm. That is a matter on which much could be said" if drawn < self._share else super().reply(messages)


def kit_for(server: ScriptedServer, script: Script, **settings: Any) -> Kit:
    model = ChatOpenAI(model="script", base_url=server.base_url, api_key="none", max_retries=0, timeout=10)
    context = ConvCoAContext(max_sub_questions=20)
    return Kit(model, script.retriever(), **{"k": 3, "max_steps": 10, "samples": SAMPLES, "settings": context, **settings})


def ask(
    name: str, script: Script, turns: list[Turn] | None = None, server: ScriptedServer | None = None, **kit: Any
) -> list[Asked]:
    """The turns of a script, or others, one after another."""
    if server is None:
        with ScriptedServer(script) as own:
            return ask(name, script, turns, own, **kit)

    async def run() -> list[Asked]:
        method = make_method(name, kit_for(server, script, **kit), ALL_METHODS)
        asked = []
        for turn in turns or script.turns():
            counter, searches, before = UsageCounter(), Searches(), server.requests
            outcome = await method.ainvoke(turn, {"callbacks": [counter, searches]})
            asked.append(Asked(outcome, server.requests - before, counter.llm_calls, counter.input_tokens, searches.count))
        return asked

    return asyncio.run(run())
