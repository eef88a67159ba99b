"""Costs of methods under one script, with the same replies and token counts for all of them (Pan et al. 2024b, table 4)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import numpy as np

from experiments.baselines.methods import ALL_METHODS
from experiments.costs.scripted import Script, ScriptedQuestion
from experiments.costs.scripted_model import ScriptedServer
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import check_methods, make_method
from langgraph_convcoa.evaluation.records import Costs, Turn
from langgraph_convcoa.evaluation.reports import Report, Table
from langgraph_convcoa.evaluation.runs.run import Meter, completed
from langgraph_convcoa.reasoning.models import load_chat_model
from langgraph_convcoa.retrieval.progress import Progress, track

DEFAULT_METHODS = ("ours", "react", "self-ask", "search-in-the-chain")
"""Our method and the agents of Pan et al. 2024a, table 3."""
LIMITS = (
    "Counted under a script: every method got the same replies from the same scripted model, in the form that its prompts ask "
    "for, and one count of tokens. A scripted model keeps to each form, asks exactly the script's sub-questions and never "
    "strays, so that this shows what the methods' structures cost, no more: what a real model spends, and how well it "
    "answers, is measured by `convcoa evaluate qa --model`. Time is left out, since the scripted model answers at once."
)

_HEADINGS = ("right", "n", "method", "input", "output", "total", "retrievals", "calls", "from–to")


@dataclass(frozen=True)
class CostRow:
    """Mean cost of a question with one method, one length of chain and one share of right guesses."""

    method: str
    sub_questions: int
    right_share: float
    questions: int
    calls: float
    input_tokens: float
    output_tokens: float
    retrievals: float
    fewest_calls: int
    most_calls: int

    @property
    def total_tokens(self) -> float:
        """Input and output."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class CostsReport(Report):
    """The rows, by share of right guesses, length of chain and method; `k` is the number of passages of a search."""

    rows: tuple[CostRow, ...]
    k: int

    def to_dict(self) -> dict[str, Any]:
        rows = [{**asdict(row), "total_tokens": row.total_tokens} for row in self.rows]
        return {"rows": rows, "k": self.k, "limits": LIMITS}

    def tables(self) -> tuple[Table, ...]:
        cells = []
        for row in self.rows:
            tokens = [f"{count:,.0f}" for count in (row.input_tokens, row.output_tokens, row.total_tokens)]
            calls = [f"{row.retrievals:.1f}", f"{row.calls:.1f}", f"{row.fewest_calls}–{row.most_calls}"]
            cells.append([f"{row.right_share:.0%}", str(row.sub_questions), row.method, *tokens, *calls])
        title = "Tokens, searches and model calls a question, by share of right guesses and n sub-questions"
        return (Table(title, _HEADINGS, cells, LIMITS, left=3),)


def measure_costs(
    script: Script, methods: Sequence[str] = DEFAULT_METHODS, *, k: int = 5, concurrency: int = 4, progress: Progress = False
) -> CostsReport:
    """Ask every question of a script by every method (`baselines.methods`), over HTTP on this machine.

    The questions of a conversation are asked in order, with the right answers as history. `concurrency` is the number of
    conversations at the same time, `k` the number of passages of a search.

    Example:
        >>> from experiments.costs.scripted import make_script
        >>> report = measure_costs(make_script(3, 1.0, questions=1), ["ours", "react"])
        >>> [(row.method, row.calls) for row in report.rows]
        [('ours', 1.0), ('react', 4.0)]
    """
    names = list(dict.fromkeys(methods))
    check_methods(names, ALL_METHODS)
    return completed(_measured(script, names, k, concurrency, progress))


async def _measured(script: Script, names: list[str], k: int, concurrency: int, progress: Progress) -> CostsReport:
    longest = max(len(one.sub_questions) for one in script.questions)
    conversations: defaultdict[str, list[tuple[ScriptedQuestion, Turn]]] = defaultdict(list)
    for one, turn in zip(script.questions, script.turns(), strict=True):
        conversations[one.conversation].append((one, turn))
    found: defaultdict[tuple[float, int, str], list[Costs]] = defaultdict(list)
    # The proxies of the environment do not apply to this machine itself.
    with ScriptedServer(script) as server, track(progress, len(names) * len(script.questions), "Asking") as advance:
        async with httpx.AsyncClient(trust_env=False) as client:
            model = load_chat_model("script", base_url=server.base_url, max_retries=0, http_async_client=client)
            settings = ConvCoAContext(max_sub_questions=min(max(longest, 6), 20))
            kit = Kit(model, script.retriever(), k=k, max_steps=longest + 1, settings=settings)
            made = {name: make_method(name, kit, ALL_METHODS) for name in names}
            waiting = iter([(name, asked) for asked in conversations.values() for name in names])

            async def work() -> None:
                for name, asked in waiting:
                    for one, turn in asked:
                        meter = Meter()
                        await made[name].ainvoke(turn, {"callbacks": [meter]})
                        found[one.right_share, len(one.sub_questions), name].append(meter.costs())
                        advance(1)

            await asyncio.gather(*(work() for _ in range(max(concurrency, 1))))
    return CostsReport(_rows(found, names), k)


def _rows(found: Mapping[tuple[float, int, str], Sequence[Costs]], names: list[str]) -> tuple[CostRow, ...]:
    rows = []
    for share, n, name in sorted(found, key=lambda cell: (cell[0], cell[1], names.index(cell[2]))):
        costs = found[share, n, name]
        counts = [(one.calls, one.input_tokens, one.output_tokens, one.retrievals) for one in costs]
        calls, given, got, searches = (float(mean) for mean in np.mean(counts, axis=0))
        fewest, most = min(one.calls for one in costs), max(one.calls for one in costs)
        rows.append(CostRow(name, n, share, len(costs), calls, given, got, searches, fewest, most))
    return tuple(rows)
