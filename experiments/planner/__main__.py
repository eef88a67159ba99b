"""Compare planners on held-out conversations: `python -m experiments.planner`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from experiments.planner.comparison import MEASURES, compare, write_plans
from langgraph_convcoa.cli.documents import searched
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.evaluation.records import sample_conversations
from langgraph_convcoa.training.planner.environment import Environment, RewardSettings, playable


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each planner, and the p values of the tests against the first planner."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.planner")
    parser.add_argument("data", type=Path, help="folder or file of conversations with answers")
    parser.add_argument("planners", nargs="+", help="language models, or folders that convcoa train-planner made")
    parser.add_argument("--docs", help="documents to search instead of the data's passages")
    parser.add_argument("--index", help="index to search instead of the data's passages")
    parser.add_argument("--sample", type=int, default=150, help="about how many questions (default: 150)")
    parser.add_argument("--split", default="dev", help='split of the questions, or "all" (default: dev)')
    parser.add_argument("--match", default="cover_em", help="em, cover_em or f1: when an answer is right (default: cover_em)")
    parser.add_argument("--longest", type=int, default=256, help="most tokens of a plan (default: 256)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the most likely plans (default); 1: as in training")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    given = parser.parse_args(arguments)
    split = None if given.split == "all" else given.split
    dataset, _ = load_part(given.data, split, passages="optional" if given.docs or given.index else "required")
    drawn = sample_conversations(playable(dataset.queries), given.sample, given.seed).conversations
    turns = [query for conversation in drawn for query in conversation.questions]
    environment = Environment(searched(dataset, given.docs, given.index), reward=RewardSettings(match=given.match))

    async def prompts() -> list[list[dict[str, str]]]:
        return [await environment.prompt(turn.question, turn.history) for turn in turns]

    asked = asyncio.run(prompts())
    options = {"longest": given.longest, "temperature": given.temperature, "seed": given.seed}
    plans = {planner: write_plans(planner, asked, **options) for planner in given.planners}
    rows = asyncio.run(compare(plans, turns, environment, seed=given.seed))
    print(f"{len(turns)} questions of {len(drawn)} conversations of {dataset.name}")
    for name in MEASURES:
        for row in rows:
            low, high = row.intervals[name]
            test = "" if row.p is None else f"p {row.p[name]:.4f}"
            print(f"{name:14} {Path(row.planner).name:30} {row.means[name]:8.3f} ({low:.3f} to {high:.3f}) {test}")


if __name__ == "__main__":
    main()
