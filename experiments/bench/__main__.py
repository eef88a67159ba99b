"""Quality, time and memory of trainings on the same data: `python -m experiments.bench training`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.bench.training import METHODS, training_cost
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.datasets.passages import load_distractors
from langgraph_convcoa.training.data import load_training_data


def main(arguments: Sequence[str] | None = None) -> None:
    """Train by several methods, and print what each reaches."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.bench")
    training = parser.add_subparsers(dest="what", required=True).add_parser("training")
    training.add_argument("data", type=Path, nargs="+", help="folders or files of conversations")
    training.add_argument("--methods", default="head,dual-question", help=f"of {', '.join(METHODS)} (default: %(default)s)")
    training.add_argument("--steps", type=int, default=200, help="steps of each training (default: 200)")
    training.add_argument("--batch", type=int, default=32, help="examples for each step (default: 32)")
    training.add_argument("--evaluations", type=int, default=10, help="measurements of each training (default: 10)")
    training.add_argument("--questions", type=int, default=500, help="most questions of the dev parts (default: 500)")
    training.add_argument("--seed", type=int, default=0, help="seed of the order of the data (default: 0)")
    training.add_argument("--distractors", help="FILE:N: the first N passages of a corpus file are searched too")
    training.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    distractors = load_distractors(given.distractors) if given.distractors else ()
    report = training_cost(
        load_training_data(given.data, part="train", invalid="skip"),
        load_training_data(given.data, part="dev", distractors=distractors, invalid="skip"),
        methods=given.methods.split(","),
        steps=given.steps,
        batch_size=given.batch,
        evaluations=given.evaluations,
        questions=given.questions,
        seed=given.seed,
        cache=open_cache(),
        progress=True,
    )
    print_report(report, given.json)


if __name__ == "__main__":
    main()
