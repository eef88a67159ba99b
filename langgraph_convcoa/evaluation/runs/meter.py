"""The usage meter of one question: its model calls, tokens, searches and time, counted the same way for all methods."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from langchain_core.outputs import ChatGeneration, LLMResult

from langgraph_convcoa.evaluation.records import Costs
from langgraph_convcoa.evaluation.runs.reply_cache import KEPT
from langgraph_convcoa.usage import UsageCounter


class Meter(UsageCounter):
    """Counts what is done under the config that holds it, from its construction on.

    A request that the reply cache answers counts like any other, with the time that it took when it was made: what a method
    costs does not depend on what was asked before it. Failed requests count too, with an estimate of their input. Of
    retrievers that ask other retrievers the outermost counts.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> meter = Meter()
        >>> _ = FakeListChatModel(responses=["Yes."]).invoke("Is it?", {"callbacks": [meter]})
        >>> meter.costs().calls, meter.costs().retrievals
        (1, 0)
    """

    def __init__(self) -> None:
        super().__init__()
        self._start = time.perf_counter()
        self._searches: set[UUID] = set()
        self._kept: list[tuple[float, float]] = []
        self.retrievals = 0

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        super().on_llm_end(response, run_id=run_id, **kwargs)
        generation = response.generations[0][0] if response.generations and response.generations[0] else None
        if isinstance(generation, ChatGeneration) and (span := (generation.generation_info or {}).get(KEPT)):
            with self._lock:
                self._kept.append((span[0], span[1]))

    def on_retriever_start(
        self, serialized: dict[str, Any], query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        with self._lock:
            if parent_run_id not in self._searches:
                self.retrievals += 1
            self._searches.add(run_id)

    def costs(self) -> Costs:
        """What was counted so far."""
        with self._lock:
            seconds = time.perf_counter() - self._start + covered(self._kept)
            parts = {str(name): int(count) for name, count in (getattr(self, "parts", None) or {}).items()}
            return Costs(self.llm_calls, self.input_tokens, self.output_tokens, self.retrievals, round(seconds, 6), parts)


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds that lie in at least one of the spans: calls that ran side by side count once."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total
