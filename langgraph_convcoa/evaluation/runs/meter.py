"""The usage meter of one question: model calls, tokens, searches and time, counted the same way for all methods."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from langchain_core.outputs import ChatGeneration, LLMResult

from langgraph_convcoa.evaluation.records import Costs
from langgraph_convcoa.evaluation.runs.reply_cache import KEPT
from langgraph_convcoa.usage import UsageCounter


class Meter(UsageCounter):
    """A callback that counts calls, tokens and searches, and the time since it was made.

    A cached reply counts with the time that it took at first, so costs do not depend on earlier runs. Failed requests count
    with an estimate of their input. If a retriever asks another retriever, only the outer one counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._start = time.perf_counter()
        self._searches: set[UUID] = set()
        self._kept = 0.0
        self.retrievals = 0

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        super().on_llm_end(response, run_id=run_id, **kwargs)
        generation = response.generations[0][0] if response.generations and response.generations[0] else None
        if isinstance(generation, ChatGeneration) and generation.generation_info:
            with self._lock:
                self._kept += generation.generation_info.get(KEPT, 0.0)

    def on_retriever_start(
        self, serialized: dict[str, Any], query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        with self._lock:
            if parent_run_id not in self._searches:
                self.retrievals += 1
            self._searches.add(run_id)

    def costs(self) -> Costs:
        """The costs so far."""
        with self._lock:
            seconds = time.perf_counter() - self._start + self._kept
            return Costs(self.llm_calls, self.input_tokens, self.output_tokens, self.retrievals, round(seconds, 6))
