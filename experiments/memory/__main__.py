"""Conversation memory: cost of long conversations, early rounds found, answers recalled: `python -m experiments.memory`."""

from __future__ import annotations

import argparse

from experiments.memory.measure import PARTS, evaluate_memory
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.memory")
    parser.add_argument("data", nargs="+", help="folders of queries.jsonl and corpus.jsonl")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of the long conversation (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the dialogs, probes and pairs (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    parts = given.parts.split(",")
    report = evaluate_memory(given.data, parts=parts, rounds=given.rounds, seed=given.seed, cache=open_cache(), progress=True)
    print_report(report, given.json)


if __name__ == "__main__":
    main()
