"""Planners before and after their training, on held-out conversations: the reward and its parts, answers, plans and costs.

Every planner is asked for the plan of each turn with the graph's own prompt, and its plan is played over the graph; the
earlier turns are the data's own. The reward is that of training, strict in the form of plans. Everything else is of the turn
as it runs: a malformed plan is read tolerantly there, and where it cannot be read the question is looked up as it stands (a
running graph would ask once more first).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics.significance import Sample, bootstrap_interval, paired_test
from langgraph_convcoa.evaluation.reports.kit import Report, Table, percent
from langgraph_convcoa.evaluation.runs.conversations import sample_conversations
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.training.planner.policy import Policy, Written, check_policy, load_policy
from langgraph_convcoa.training.planner.reward import (
    TurnReward,
    Verdict,
    answer_matches,
    malformed_reward,
    turn_reward,
    verdict_of,
)
from langgraph_convcoa.training.planner.turn import Environment, playable

MEASURES = {
    "reward": "reward",
    "final": "R final",
    "sub_questions": "R sub-questions",
    "efficiency": "R efficiency",
    "accuracy": "answers right",
    "malformed": "malformed plans",
    "empty": "empty chains",
    "n": "sub-questions",
    "retrievals": "retrievals",
    "guesses": "guesses",
    "kept": "guesses verified",
    "kept_right": "verified and right",
    "hallucinated": "guesses refuted",
    "declined": "guesses declined",
    "calls": "model calls",
    "prompt_tokens": "prompt tokens",
    "plan_tokens": "plan tokens",
}
"""What is measured of each turn, all but the shares of guesses by the turn."""
_SHARES = ("accuracy", "malformed", "empty")


@dataclass(frozen=True)
class PlannerRow:
    """Figures of one planner, means over the turns.

    Attributes:
        planner: Its name or folder.
        means: Of each of `MEASURES`; `kept`, `hallucinated` and `declined` are counts a turn.
        intervals: Their 95% bootstrap intervals over conversations.
        p: Of the paired test over conversations against the baseline; nothing for that itself.
        rates: The shares of the sub-questions whose guess was kept, hallucinated, declined, ...
        seconds: A plan, on average.
    """

    planner: str
    means: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    p: Mapping[str, float] | None
    rates: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class PlannerReport(Report):
    """Planners on the same turns, each tested against the baseline; `turns` holds each plan with what it earned."""

    data: str
    split: str
    questions: int
    conversations: int
    baseline: str
    temperature: float
    rows: tuple[PlannerRow, ...]
    turns: tuple[dict[str, Any], ...]

    def tables(self) -> list[Table]:
        about = f"{self.questions:,} questions of {self.conversations:,} conversations of {self.data} ({self.split})"
        plans = f"plans drawn at temperature {self.temperature:g}" if self.temperature else "the most likely plans"
        names = [Path(row.planner).name or row.planner for row in self.rows]
        figures = [
            [name, *(_figure(row, measure) for row in self.rows)]
            for measure, name in MEASURES.items()
            if measure not in get_args(Verdict)
        ]
        rates = [[f"guesses {verdict}", *(percent(row.rates[verdict]) for row in self.rows)] for verdict in get_args(Verdict)]
        seconds = ["seconds a plan", *(f"{row.seconds:.2f}" for row in self.rows)]
        tested = [
            [MEASURES[measure], *("" if row.p is None else _change(row, self._of_baseline, measure) for row in self.rows)]
            for measure in ("reward", "accuracy", "malformed", "n", "retrievals", "kept", "hallucinated", "declined")
        ]
        return [
            Table(
                "Planners",
                ("", *names),
                [*figures, *rates, seconds],
                note=f"{about}; {plans}; 95% intervals over conversations.",
            ),
            Table(
                f"Change against {Path(self.baseline).name}",
                ("", *names),
                tested,
                note="Means a question; p of a paired randomisation test over conversations.",
            ),
        ]

    @property
    def _of_baseline(self) -> PlannerRow:
        return next(row for row in self.rows if row.planner == self.baseline)


def evaluate_planners(
    data: str,
    queries: Sequence[Query],
    planners: Sequence[str | Path],
    environment: Environment,
    *,
    part: str = "",
    baseline: str | Path | None = None,
    sample: int | None = 150,
    seed: int = 0,
    max_new_tokens: int = 256,
    batch_size: int = 16,
    temperature: float = 0.0,
    device: str | None = None,
    progress: Progress = True,
) -> PlannerReport:
    """Play held-out conversations with each planner.

    Args:
        data: The data set's name.
        queries: Its held-out turns.
        planners: Language models by name or folder, or adapters' folders.
        environment: What plans are played over, with the reward.
        part: Which part of the data this is, in words.
        baseline: Whom the others are tested against; the first when None.
        sample: About how many questions: whole conversations are drawn until there are so many; all when None.
        seed: Of the draw, of plans that are drawn, of the intervals and the tests.
        max_new_tokens: Where a plan is cut off.
        batch_size: Plans written at a time.
        temperature: Of the plans; 0 takes the most likely one, as a graph in use does, and 1 draws as training does.
        device: "cpu", "cuda", ...
        progress: A bar, a callback or nothing.

    Raises:
        InputError: No planner is named or one twice, the baseline is none of them, no question has a known answer, or a
            planner has no chat template.
        ModelError: A planner cannot be loaded.
    """
    names, chosen = check_planners(planners, baseline)
    drawn = sample_conversations(playable(queries), sample, seed)
    turns = [query for conversation in drawn.conversations for query in conversation.questions]
    places = [conversation.id for conversation in drawn.conversations for _ in conversation.questions]
    prompts = asyncio.run(_prompts(environment, turns))
    values: dict[str, np.ndarray] = {}
    verdicts: dict[str, list[Verdict]] = {}
    seconds: dict[str, float] = {}
    told: list[dict[str, Any]] = [
        {"id": turn.id, "conversation": place, "question": turn.question, "references": list(turn.references), "planners": {}}
        for turn, place in zip(turns, places, strict=True)
    ]
    for name in names:
        # One at a time in memory.
        policy: Policy = load_policy(name, device=device)
        start = time.perf_counter()
        written = policy.write(
            prompts,
            max_new_tokens=max_new_tokens,
            batch_size=batch_size,
            temperature=temperature,
            seed=seed,
            progress=progress,
        )
        seconds[name] = (time.perf_counter() - start) / len(turns)
        del policy
        played = asyncio.run(_played(environment, turns, written, progress))
        values[name] = np.array([[entry["figures"][measure] for measure in MEASURES] for entry in played])
        verdicts[name] = [verdict for entry in played for verdict in entry["verdicts"]]
        for row, entry in zip(told, played, strict=True):
            row["planners"][name] = {key: entry[key] for key in ("plan", "fault", "answer", "verdicts")} | entry["figures"]
    rows = []
    for name in names:
        low, high = bootstrap_interval([Sample(values[name], places)], seed=seed)
        test = None if name == chosen else paired_test([Sample(values[name] - values[chosen], places)], seed=seed)
        whole = max(len(verdicts[name]), 1)
        rows.append(
            PlannerRow(
                name,
                dict(zip(MEASURES, values[name].mean(axis=0).tolist(), strict=True)),
                {measure: (float(low[n]), float(high[n])) for n, measure in enumerate(MEASURES)},
                None if test is None else dict(zip(MEASURES, test.tolist(), strict=True)),
                {verdict: verdicts[name].count(verdict) / whole for verdict in get_args(Verdict)},
                seconds[name],
            )
        )
    return PlannerReport(
        data, part or "all", len(turns), len(drawn.conversations), chosen, temperature, tuple(rows), tuple(told)
    )


def check_planners(planners: Sequence[str | Path], baseline: str | Path | None = None) -> tuple[list[str], str]:
    """The planners and the baseline as texts, or the InputError that `evaluate_planners` raises; none is loaded."""
    names = [str(planner) for planner in planners]
    if not names:
        raise InputError("name a planner's folder, or several to compare")
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"the planner {twice} is named twice: name each folder once")
    chosen = names[0] if baseline is None else str(baseline)
    if chosen not in names:
        raise InputError(f"the baseline {chosen} is none of the planners: {', '.join(names)}")
    for name in names:
        check_policy(name)
    return names, chosen


async def _prompts(environment: Environment, turns: Sequence[Query]) -> list[list[dict[str, str]]]:
    return [await environment.prompt(turn.question, turn.history) for turn in turns]


async def _played(
    environment: Environment, turns: Sequence[Query], written: Sequence[Written], progress: Progress
) -> list[dict[str, Any]]:
    with track(progress, len(turns), "Playing") as advance:
        found = []
        for turn, reply in zip(turns, written, strict=True):
            found.append(await _turn(environment, turn, reply))
            advance(1)
    return found


async def _turn(environment: Environment, turn: Query, reply: Written) -> dict[str, Any]:
    fault = environment.fault(reply.text)
    output = await environment.play(reply.text, turn.question, turn.history)
    # Also of a malformed plan: what the turn that it led to came to.
    settings = environment.reward_settings
    matched = await answer_matches(output["answer"], turn.question, turn.references, settings, output)
    if fault:
        reward: TurnReward = malformed_reward(fault, settings)
    else:
        reward = await turn_reward(reply.text, output, turn.question, turn.references, settings)
    verdicts = [verdict_of(item) for item in output["chain"]]
    usage = output["usage"]
    figures = {
        "reward": reward.total,
        "final": reward.final,
        "sub_questions": reward.sub_questions,
        "efficiency": reward.efficiency,
        "accuracy": matched,
        "malformed": float(bool(fault)),
        "empty": float(not fault and reward.n == 0),
        "n": float(len(output["chain"])),
        "retrievals": float(usage["retrievals"]),
        "guesses": float(sum(bool(item["guess_answer"]) for item in output["chain"])),
        "kept": float(verdicts.count("kept")),
        "kept_right": float(sum([await _right(environment, turn, item) for item in output["chain"]])),
        "hallucinated": float(verdicts.count("hallucinated")),
        "declined": float(verdicts.count("declined")),
        "calls": 1.0 + usage["llm_calls"],
        "prompt_tokens": float(reply.prompt_tokens + usage["input_tokens"]),
        "plan_tokens": float(reply.tokens + usage["output_tokens"]),
    }
    return {"plan": reply.text, "fault": fault, "answer": output["answer"], "verdicts": verdicts, "figures": figures}


async def _right(environment: Environment, turn: Query, item: ChainItem) -> bool:
    """Whether a guess that was verified holds the answer to the question, and not only words of the evidence."""
    if verdict_of(item) != "kept":
        return False
    return await answer_matches(item["guess_answer"], turn.question, turn.references, environment.reward_settings) > 0


def _figure(row: PlannerRow, measure: str) -> str:
    mean, (low, high) = row.means[measure], row.intervals[measure]
    if measure in _SHARES:
        return f"{percent(mean)} ({percent(low)} to {percent(high)})"
    digits = 0 if measure.endswith("tokens") else 2
    return f"{mean:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _change(row: PlannerRow, base: PlannerRow, measure: str) -> str:
    change = row.means[measure] - base.means[measure]
    shown = f"{change:+.1%}" if measure in _SHARES else f"{change:+.2f}"
    return shown if row.p is None else f"{shown} (p {row.p[measure]:.4f})"
