"""Refusals of questions about unknown names, without a model: `python -m experiments.unknown_names`."""

from __future__ import annotations

import argparse

from experiments.unknown_names.measure import evaluate_unknown_names
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache


def main() -> None:
    """Print the shares of refusals."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.unknown_names")
    parser.add_argument("data", help="folder of queries.jsonl and corpus.jsonl")
    parser.add_argument("--split", default="dev", help="split of the questions (default: dev)")
    parser.add_argument("--sample", type=int, default=200, help="number of questions (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the questions and names (default: 0)")
    parser.add_argument("-k", type=int, help="passages for each search (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    report = evaluate_unknown_names(
        given.data, split=given.split, sample=given.sample, seed=given.seed, k=given.k, cache=open_cache()
    )
    print_report(report, given.json)


if __name__ == "__main__":
    main()
