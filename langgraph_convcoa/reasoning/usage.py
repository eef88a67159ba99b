"""The cost of a turn and of its nodes: model calls, tokens, retrievals and seconds."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, LLMResult
from typing_extensions import TypedDict  # pydantic, which makes Studio's schemas, needs this TypedDict before Python 3.12


class NodeUsage(TypedDict):
    """The cost of one node in this turn."""

    llm_calls: int
    input_tokens: int
    output_tokens: int
    retrievals: int
    seconds: float


class Usage(NodeUsage):
    """The cost of a turn, and of each of its nodes.

    `seconds` counts parallel branches once. `recalled` is the number of sub-questions that the knowledge set answered without
    a retrieval, `reused` the number of pieces of evidence from earlier turns.
    """

    recalled: int
    reused: int
    per_node: dict[str, NodeUsage]


def node_usage(seconds: float = 0.0, retrievals: int = 0) -> NodeUsage:
    """A cost with no model call."""
    return {"llm_calls": 0, "input_tokens": 0, "output_tokens": 0, "retrievals": retrievals, "seconds": seconds}


def add_costs(costs: dict[str, NodeUsage], more: dict[str, NodeUsage]) -> dict[str, NodeUsage]:
    """Reducer: add up the costs of each node. A turn begins with `recall`, so its cost replaces the old costs."""
    costs = {} if "recall" in more else costs
    return costs | {node: _sum([costs.get(node) or node_usage(), cost]) for node, cost in more.items()}


def total_usage(costs: dict[str, NodeUsage], seconds: float, recalled: int = 0, reused: int = 0) -> Usage:
    """The cost of a turn that took `seconds`, from the costs of its nodes."""
    return {**_sum(costs.values()), "seconds": seconds, "recalled": recalled, "reused": reused, "per_node": costs}


def _sum(costs: Iterable[NodeUsage]) -> NodeUsage:
    each = [node_usage(), *costs]
    return cast("NodeUsage", {name: sum(cost[name] for cost in each) for name in node_usage()})  # type: ignore[literal-required]


class UsageCounter(BaseCallbackHandler):
    """Counts the model requests under a node's config, streamed or not.

    If the provider reports no tokens, they are estimated at four characters a token.
    """

    run_inline = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompts: dict[UUID, list[BaseMessage]] = {}
        self.llm_calls = 0
        self.input_tokens = 0
        self.output_tokens = 0

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        with self._lock:
            self.llm_calls += 1
            self._prompts[run_id] = messages[0] if messages else []

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        with self._lock:
            prompt = self._prompts.pop(run_id, None)
            if prompt is None:
                return
            generation = response.generations[0][0] if response.generations and response.generations[0] else None
            message = generation.message if isinstance(generation, ChatGeneration) else None
            reported = message.usage_metadata if isinstance(message, AIMessage) else None
            if reported:
                self.input_tokens += reported["input_tokens"]
                self.output_tokens += reported["output_tokens"]
            else:
                self.input_tokens += count_tokens_approximately(prompt)
                self.output_tokens += count_tokens_approximately([message]) if message is not None else 0

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        with self._lock:
            prompt = self._prompts.pop(run_id, None)
            if prompt is not None:
                self.input_tokens += count_tokens_approximately(prompt)

    def cost(self, seconds: float) -> NodeUsage:
        """The cost of a node that took `seconds`, with the counts so far."""
        counted = {"llm_calls": self.llm_calls, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return cast("NodeUsage", {**node_usage(seconds), **counted})
