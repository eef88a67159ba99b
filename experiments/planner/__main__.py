"""Planners on held-out conversations: reward, answers, guesses, costs: `python -m experiments.planner`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.planner.comparison import check_planners, evaluate_planners
from langgraph_convcoa.cli import documents
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.train import check_device
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.training.planner.reward import RewardSettings
from langgraph_convcoa.training.planner.turn import Environment


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each planner, and the changes against the baseline."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.planner")
    parser.add_argument("data", type=Path, help="folder or file of conversations with answers")
    parser.add_argument("planners", nargs="+", help="language models, or folders that convcoa train-planner made")
    parser.add_argument("--baseline", help="planner that the others are tested against (default: the first)")
    parser.add_argument("--docs", help="documents to search instead of the data's passages")
    parser.add_argument("--index", help="index to search instead of the data's passages")
    parser.add_argument("--sample", type=int, default=150, help="about how many questions (default: 150)")
    parser.add_argument("--split", default="dev", help='split of the questions, or "all" (default: dev)')
    parser.add_argument("--match", default="cover_em", help="em, cover_em or f1: when an answer is right (default: cover_em)")
    parser.add_argument("--longest", type=int, default=256, help="most tokens of a plan (default: 256)")
    parser.add_argument("--batch-size", type=int, default=16, help="plans written at a time (default: 16)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 for the most likely plans, 1 as in training")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample, the intervals and the tests (default: 0)")
    parser.add_argument("--device", help="cpu, cuda, ... (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    check_device(given.device)
    reward = RewardSettings(match=given.match)
    check_planners(given.planners, given.baseline)
    split = None if given.split == "all" else given.split
    dataset, part = load_part(given.data, split, passages="optional" if given.docs or given.index else "required")
    report = evaluate_planners(
        dataset.name,
        dataset.queries,
        given.planners,
        Environment(documents.searched(dataset, given.docs, given.index), reward=reward),
        part=part,
        baseline=given.baseline,
        sample=given.sample,
        seed=given.seed,
        max_new_tokens=given.longest,
        batch_size=given.batch_size,
        temperature=given.temperature,
        device=given.device,
    )
    print_report(report, given.json)


if __name__ == "__main__":
    main()
