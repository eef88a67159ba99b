"""Figures of planners on the same held-out turns.

Each planner writes a plan from the graph's own prompt, and the plan is played over the graph. The earlier turns come from the
data. The reward is the reward of training: a malformed plan gets the penalty. The other figures are measured on the turn
itself, which reads a malformed plan as well as it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.evaluation.metrics import Sample, bootstrap_interval, paired_test
from langgraph_convcoa.training.planner.environment import Environment, TurnReward, answer_matches, turn_reward, verdict_of
from langgraph_convcoa.training.planner.grpo import load_planner

MEASURES = (
    "reward",
    "final",
    "sub_questions",
    "efficiency",
    "accuracy",
    "malformed",
    "empty",
    "n",
    "retrievals",
    "kept",
    "hallucinated",
    "declined",
)
"""Figures of each turn. The verdicts are counts of sub-questions."""


@dataclass(frozen=True)
class PlannerRow:
    """Means of one planner over the turns."""

    planner: str
    means: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]  # 95%, bootstrapped over conversations.
    p: Mapping[str, float] | None  # Paired test over conversations against the first planner; None for that planner.


def write_plans(
    planner: str,
    prompts: Sequence[Sequence[Mapping[str, str]]],
    *,
    longest: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int = 16,
) -> list[str]:
    """The plans of a planner for prompts: the most likely ones, or sampled ones.

    Args:
        planner: Name or folder of a language model, or folder of an adapter.
        prompts: Chats, n of them.
        longest: Maximum number of tokens of a plan.
        temperature: 0 takes the most likely token.
        seed: Seed of the sampling.
        batch_size: Plans written at a time.
    """
    model, tokenizer = load_planner(planner, dtype="float32")
    tokenizer.padding_side = "left"
    torch.manual_seed(seed)
    sampling = {"temperature": temperature, "top_k": 0} if temperature else {"temperature": None, "top_k": None}
    plans: list[str] = []
    for start in range(0, len(prompts), batch_size):
        chats = [list(prompt) for prompt in prompts[start : start + batch_size]]
        inputs = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        written = model.generate(**inputs, max_new_tokens=longest, do_sample=bool(temperature), top_p=None, **sampling)
        plans += tokenizer.batch_decode(written[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return plans


async def turn_figures(environment: Environment, plan: str, turn: Query) -> dict[str, float]:
    """The figures of one turn with a plan."""
    fault, settings = environment.fault(plan), environment.reward_settings
    output = await environment.play(plan, turn.question, turn.history)
    reward = TurnReward(penalty=settings.malformed, fault=fault)
    if not fault:
        reward = await turn_reward(plan, output, turn.question, turn.references, settings)
    verdicts = [verdict_of(item) for item in output["chain"]]
    parts: dict[str, Any] = {name: getattr(reward, name) for name in ("final", "sub_questions", "efficiency")}
    return parts | {
        "reward": reward.total,
        "accuracy": answer_matches(output["answer"], turn.question, turn.references, settings, output),
        "malformed": float(bool(fault)),
        "empty": float(not fault and reward.n == 0),
        "n": float(len(verdicts)),
        "retrievals": float(output["usage"]["retrievals"]),
        **{name: float(verdicts.count(name)) for name in ("kept", "hallucinated", "declined")},
    }


async def compare(
    plans: Mapping[str, Sequence[str]], turns: Sequence[Query], environment: Environment, *, seed: int = 0
) -> list[PlannerRow]:
    """Play the plans of each planner for the same turns, and test the other planners against the first one."""
    places = [turn.conversation or turn.id for turn in turns]
    values = {}
    for planner, written in plans.items():
        figures = [await turn_figures(environment, plan, turn) for plan, turn in zip(written, turns, strict=True)]
        values[planner] = np.array([[row[name] for name in MEASURES] for row in figures])
    first, found = next(iter(plans)), []
    for planner, rows in values.items():
        low, high = bootstrap_interval([Sample(rows, places)], seed=seed)
        test = None if planner == first else paired_test([Sample(rows - values[first], places)], seed=seed)
        found.append(
            PlannerRow(
                planner,
                dict(zip(MEASURES, rows.mean(axis=0).tolist(), strict=True)),
                {name: (float(low[n]), float(high[n])) for n, name in enumerate(MEASURES)},
                None if test is None else dict(zip(MEASURES, test.tolist(), strict=True)),
            )
        )
    return found
