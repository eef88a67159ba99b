"""Cost of a turn as a conversation grows: prompt tokens, seconds outside the model, and the size of the state."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import SimpleChatModel
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import SkipValidation

from experiments.memory.dialogs import Turn, conversations
from experiments.memory.recall import rephrase
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_REPEATED = 20
"""Number of last rounds that repeat earlier questions: half in the same words, half rephrased by a rule."""
_HALF_WINDOW = 4
"""A median is over a round, and this many rounds before and after it."""
_PASSAGES = 200


@dataclass(frozen=True)
class RoundCost:
    """One round: prompt tokens (estimated), seconds outside the model, KB of its checkpoint, look-ups made and saved."""

    round: int
    prompt_tokens: int
    seconds: float
    state_kb: float
    retrievals: int
    recalled: int


@dataclass
class _Told:
    """The sub-question and the answer of the next turn, and the seconds spent inside the model so far."""

    sub_question: str = ""
    answer: str = ""
    seconds: float = 0.0


class _InstantModel(SimpleChatModel):
    """A model that gives the right answer at once. `told` holds the answer; it is set before each turn.

    It plans one sub-question without a guess, whatever was found. Then it answers the sub-question and the question with the
    known answer, and cites one passage.
    """

    told: SkipValidation[_Told]

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _call(self, messages: list[BaseMessage], *_args: Any, **_kwargs: Any) -> str:
        start = time.perf_counter()
        reply = self._reply(messages[0].text)
        self.told.seconds += time.perf_counter() - start
        return reply

    def _reply(self, prompt: str) -> str:
        sub_question, answer = self.told.sub_question, self.told.answer
        if '"optimized_question"' in prompt and '"chain"' in prompt:
            step = {"action": "knowledge_retrieval", "sub": sub_question, "guess_answer": "", "missing_flag": True}
            return json.dumps({"optimized_question": sub_question, "chain": [step], "final_answer": ""})
        settled = {"index": 1, "answer": answer, "evidence": [1], "status": "supported"}
        return json.dumps({"answers": [settled], "final_answer": f"{answer.rstrip('.')} [1]."})


def evaluate_costs(
    datasets: Sequence[Dataset],
    encoder: Encoder,
    *,
    rounds: int = 100,
    seed: int = 0,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> list[RoundCost]:
    """Run a conversation of real questions through the graph, with a store on disk and a model that answers at once.

    Raises:
        InputError: The data holds too few dialogs for this number of rounds.
    """
    script = _script(datasets, rounds, seed)
    passages = _passages(datasets, {identity for turn in script for identity in turn.gold})
    retriever = HopfieldRetriever.from_documents(passages, encoder=encoder, cache=cache, progress=progress)
    told = _Told()
    costs = []
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteSaver.from_conn_string(str(Path(folder) / "rounds.sqlite")) as saver,
        track(progress, len(script), "Talking") as advance,
    ):
        graph = build_graph(model=_InstantModel(told=told), retriever=retriever).compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "rounds"}}
        for number, turn in enumerate(script, 1):
            told.sub_question, told.answer = turn.alone or turn.question, turn.answer or "Yes."
            inside, start = told.seconds, time.perf_counter()
            out = graph.invoke({"question": turn.question}, config, durability="sync")
            seconds = time.perf_counter() - start - (told.seconds - inside)
            usage = out["usage"]
            stored = saver.get_tuple(config)
            size = len(saver.serde.dumps_typed(stored.checkpoint)[1]) if stored is not None else 0
            counts = usage["retrievals"], usage["recalled"]
            costs.append(RoundCost(number, usage["input_tokens"], seconds, size / 1000, *counts))
            advance(1)
    return costs


def _script(datasets: Sequence[Dataset], rounds: int, seed: int) -> list[Turn]:
    fresh = rounds - _REPEATED if rounds > 2 * _REPEATED else rounds
    found = conversations(datasets, fresh, seed, count=1)
    if not found:
        raise InputError(f"The data holds too few dialogs for {fresh} rounds: ask for fewer (--rounds), or add folders.")
    rng = random.Random(seed)
    known = [turn for turn in found[0] if turn.alone and turn.answer]
    again = rng.sample(known, min(rounds - fresh, len(known)))
    repeated = []
    for n, turn in enumerate(again):
        question = (rephrase(turn.alone, rng) or turn.alone) if n % 2 else turn.alone
        repeated.append(Turn(question, turn.answer, "", question, turn.gold, turn.dialog))
    return [*found[0], *repeated]


def _passages(datasets: Sequence[Dataset], gold: set[str]) -> list[Document]:
    every = [document for dataset in datasets for document in dataset.corpus]
    wanted = [document for document in every if document.id in gold]
    others = [document for document in every if document.id not in gold]
    return [*wanted, *others[: max(0, _PASSAGES - len(wanted))]]


def around(costs: Sequence[RoundCost], number: int) -> Sequence[RoundCost]:
    """The rounds of the window around a round."""
    return [cost for cost in costs if abs(cost.round - number) <= _HALF_WINDOW]


def ratio(costs: Sequence[RoundCost], field: str, late: int = 50, early: int = 10) -> float | None:
    """Median of a figure around a late round, divided by the median around an early round; None without such rounds."""
    windows = [around(costs, number) for number in (late, early)]
    if not all(windows):
        return None
    above, below = (statistics.median(getattr(cost, field) for cost in window) for window in windows)
    return float(above / below) if below else None
