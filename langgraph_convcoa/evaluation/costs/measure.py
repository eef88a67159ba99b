"""Costs of methods under one script: the same replies and token counts for all of them (Pan et al. 2024b, table 4)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx
from rich.console import RenderableType
from rich.table import Table

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.costs.scripted import Script, ScriptedQuestion
from langgraph_convcoa.evaluation.costs.scripted_server import ScriptedServer
from langgraph_convcoa.evaluation.methods.base import Kit, Method
from langgraph_convcoa.evaluation.methods.registry import check_methods, make_method
from langgraph_convcoa.evaluation.records import Costs, Turn
from langgraph_convcoa.evaluation.runs.metering import Meter
from langgraph_convcoa.evaluation.runs.waiting import completed
from langgraph_convcoa.reasoning.models import load_chat_model
from langgraph_convcoa.retrieval.progress import Progress, track

DEFAULT_METHODS = ("ours", "react", "self-ask", "search-in-the-chain")
"""Ours beside the agents of Pan et al. 2024a, table 3."""
LIMITS = (
    "Counted under a script: every method got the same replies from the same scripted model, in the form that its prompts ask "
    "for, and one count of tokens. A scripted model keeps to each form, asks exactly the script's sub-questions and never "
    "strays, so that this shows what the methods' structures cost, no more: what a real model spends, and how well it "
    "answers, is measured by `convcoa evaluate qa --model`. Time is left out, since the scripted model answers at once."
)

HEADINGS = ("right", "n", "method", "input", "output", "total", "retrievals", "calls", "from–to")
"""Share of right guesses, sub-questions of a question, tokens, searches, model calls and their range."""


@dataclass(frozen=True)
class CostRow:
    """What a question cost a method on average, for one length of chain and one share of right guesses.

    Attributes:
        method: Its name.
        sub_questions: n, of each question.
        right_share: Share of the guesses that are right.
        questions: How many questions the means are of.
        calls, input_tokens, output_tokens, retrievals: Means a question.
        fewest_calls, most_calls: Of a question.
    """

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
class CostsReport:
    """The rows, by share of right guesses, length of chain and method.

    Attributes:
        rows: One a cell of the table.
        k: Passages a search.
    """

    rows: tuple[CostRow, ...]
    k: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        rows = [{**asdict(row), "total_tokens": row.total_tokens} for row in self.rows]
        return {"rows": rows, "k": self.k, "limits": LIMITS}

    def cells(self) -> list[list[str]]:
        """The table's rows as text, in the order of `HEADINGS`."""
        return [
            [
                f"{row.right_share:.0%}",
                str(row.sub_questions),
                row.method,
                f"{row.input_tokens:,.0f}",
                f"{row.output_tokens:,.0f}",
                f"{row.total_tokens:,.0f}",
                f"{row.retrievals:.1f}",
                f"{row.calls:.1f}",
                f"{row.fewest_calls}–{row.most_calls}",
            ]
            for row in self.rows
        ]

    def __rich__(self) -> RenderableType:
        table = Table(title="Tokens, searches and model calls a question, by share of right guesses and n sub-questions")
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
        block = None
        for row, cells in zip(self.rows, self.cells(), strict=True):
            if block not in (None, (row.right_share, row.sub_questions)):
                table.add_section()
            block = (row.right_share, row.sub_questions)
            table.add_row(*cells, style="bold" if row.method == "ours" else None)
        table.caption = LIMITS
        return table


def measure_costs(
    script: Script,
    methods: Sequence[str] = DEFAULT_METHODS,
    *,
    k: int = 5,
    samples: int = 5,
    concurrency: int = 4,
    progress: Progress = False,
) -> CostsReport:
    """Ask every question of a script by every method, over HTTP on this machine.

    Args:
        script: The questions; those of one conversation are asked in order, after the right answers.
        methods: Names, see `methods.registry`.
        k: Passages a search.
        samples: Of methods that draw several replies.
        concurrency: Conversations that are asked at the same time.
        progress: A bar, a callback or nothing.

    Raises:
        InputError: There is no such method.
        ModelError: The scripted model does not answer.

    Example:
        >>> from langgraph_convcoa.evaluation.costs.scripted import make_script
        >>> report = measure_costs(make_script(3, 1.0, questions=1), ["ours", "react"])
        >>> [(row.method, row.calls) for row in report.rows]
        [('ours', 1.0), ('react', 4.0)]
    """
    names = list(dict.fromkeys(methods))
    check_methods(names)
    return completed(_measured(script, names, k, samples, concurrency, progress))


async def _measured(
    script: Script, names: list[str], k: int, samples: int, concurrency: int, progress: Progress
) -> CostsReport:
    longest = max(len(one.sub_questions) for one in script.questions)
    conversations: defaultdict[str, list[tuple[ScriptedQuestion, Turn]]] = defaultdict(list)
    for one, turn in zip(script.questions, script.turns(), strict=True):
        conversations[one.conversation].append((one, turn))
    found: defaultdict[tuple[float, int, str], list[Costs]] = defaultdict(list)
    # What the environment says of proxies is not meant for this machine itself.
    with ScriptedServer(script) as server, track(progress, len(names) * len(script.questions), "Asking") as advance:
        async with httpx.AsyncClient(trust_env=False) as client:
            model = load_chat_model("script", base_url=server.base_url, max_retries=0, http_async_client=client)
            settings = ConvCoAContext(max_sub_questions=min(max(longest, 6), 20))
            kit = Kit(model, script.retriever(), k=k, max_steps=longest + 1, samples=samples, settings=settings)
            made = {name: make_method(name, kit) for name in names}
            waiting = iter([(name, asked) for asked in conversations.values() for name in names])

            async def work() -> None:
                for name, asked in waiting:
                    for one, turn in asked:
                        costs = await _cost(made[name], turn)
                        found[one.right_share, len(one.sub_questions), name].append(costs)
                        advance(1)

            await asyncio.gather(*(work() for _ in range(max(concurrency, 1))))
    return CostsReport(_rows(found, names), k)


async def _cost(method: Method, turn: Turn) -> Costs:
    meter = Meter()
    await method.ainvoke(turn, {"callbacks": [meter]})
    return meter.costs()


def _rows(found: Mapping[tuple[float, int, str], Sequence[Costs]], names: list[str]) -> tuple[CostRow, ...]:
    rows = []
    for share, n, name in sorted(found, key=lambda cell: (cell[0], cell[1], names.index(cell[2]))):
        costs = found[share, n, name]

        def mean(of: Callable[[Costs], int], costs: Sequence[Costs] = costs) -> float:
            return sum(map(of, costs)) / len(costs)

        rows.append(
            CostRow(
                method=name,
                sub_questions=n,
                right_share=share,
                questions=len(costs),
                calls=mean(lambda one: one.calls),
                input_tokens=mean(lambda one: one.input_tokens),
                output_tokens=mean(lambda one: one.output_tokens),
                retrievals=mean(lambda one: one.retrievals),
                fewest_calls=min(one.calls for one in costs),
                most_calls=max(one.calls for one in costs),
            )
        )
    return tuple(rows)
