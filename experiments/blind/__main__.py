"""People judge the answers of runs blind: `python -m experiments.blind sheets RUN DATA OUT`, then `score OUT`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from experiments.blind.score import score_sheets
from experiments.blind.sheets import make_sheets
from langgraph_convcoa.cli.console import print_report


def main(arguments: Sequence[str] | None = None) -> None:
    """Write sheets for judges, or count what they filled in."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.blind")
    what = parser.add_subparsers(dest="what", required=True)
    sheets = what.add_parser("sheets", help="write a sheet to read and a table to fill in for each judge")
    sheets.add_argument("run", help="folder of a run of convcoa evaluate qa")
    sheets.add_argument("data", help="data set of the run")
    sheets.add_argument("out", help="new folder for the sheets")
    sheets.add_argument("--also", action="append", default=[], help="another run over the same questions; may be repeated")
    sheets.add_argument("--methods", default="", help="methods whose answers are judged (default: all)")
    sheets.add_argument("--judges", type=int, default=2, help="number of judges (default: 2)")
    sheets.add_argument("--seed", type=int, default=0, help="seed of the orders of items and answers (default: 0)")
    score = what.add_parser("score", help="count marks, wins, ties and the agreement of the judges")
    score.add_argument("out", nargs="+", help="folders of sheets, counted together")
    score.add_argument("--seed", type=int, default=0, help="seed of the intervals and tests (default: 0)")
    score.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    if given.what == "score":
        print_report(score_sheets(given.out, seed=given.seed), given.json)
        return
    methods = [name.strip() for name in given.methods.split(",") if name.strip()]
    made = make_sheets([given.run, *given.also], given.data, given.out, methods=methods, judges=given.judges, seed=given.seed)
    left = f"; {made.left_out:,} questions without an answer of each are left out" if made.left_out else ""
    print(f"{made.items:,} items with the answers of {', '.join(made.methods)}{left}")
    print(f"judges fill in verdicts.csv in {made.folder}/judge-1 and so on; keep {made.folder}/key.json from them")


if __name__ == "__main__":
    main()
