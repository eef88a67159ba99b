"""Model calls and tokens of methods under one script, without a model: `python -m experiments.costs`."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.costs.measure import DEFAULT_METHODS, measure_costs
from experiments.costs.scripted import Script, load_script, make_script
from langgraph_convcoa.cli.console import print_report

_SENTENCES = 5
"""Sentences of a synthetic passage."""


def main() -> None:
    """Print a row for each share of right guesses, length of the chain and method."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.costs")
    parser.add_argument("script", nargs="?", help="script of questions as JSON (default: synthetic questions)")
    parser.add_argument("--methods", default=",".join(DEFAULT_METHODS), help="methods (default: %(default)s)")
    parser.add_argument("--sub-questions", default="1,2,4,6", help="lengths of synthetic chains (default: %(default)s)")
    parser.add_argument("--right", default="0,0.5,1", help="shares of right guesses (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=8, help="synthetic questions for each row (default: 8)")
    parser.add_argument("-k", type=int, default=5, help="passages for each search (default: 5)")
    parser.add_argument("--save-script", type=Path, help="write the synthetic script to this file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    script = load_script(given.script) if given.script else _synthetic(given.sub_questions, given.right, given.questions)
    if given.save_script:
        script.save(given.save_script)
    report = measure_costs(script, given.methods.split(","), k=given.k, progress=True)
    print_report(report, given.json)


def _synthetic(lengths: str, shares: str, questions: int) -> Script:
    parts = [
        make_script(int(n), float(share), questions, sentences=_SENTENCES)
        for share in shares.split(",")
        for n in lengths.split(",")
    ]
    return Script(tuple(question for part in parts for question in part.questions))


if __name__ == "__main__":
    main()
