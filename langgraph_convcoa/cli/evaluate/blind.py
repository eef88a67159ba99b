"""`convcoa evaluate blind` and `blind-score`: people judge the answers of a run without knowing whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson, names_of, option


def blind(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run of convcoa evaluate qa.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data set that it asked.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder for the sheets.")],
    also: Annotated[list[Path] | None, option("RUN", "A further run over the same questions; may be repeated.")] = None,
    methods: Annotated[str | None, option("A,B", "Whose answers; those of all methods by default.")] = None,
    judges: Annotated[int, option("N", "How many people judge.", min=1, max=99)] = 2,
    seed: Annotated[int, option("S", "Of the orders of items and answers.")] = 0,
) -> None:
    """Make sheets for people who judge answers blind: which method gave an answer stands in key.json alone.

    Each judge has a folder with sheet.md, to read, and verdicts.csv, to fill in: 0 to 2 each for correct, complete, faithful
    and concise, a rank among the answers to the question, and a reason. Citations are left out.

    [bold]Examples[/bold]
      convcoa evaluate blind my-run data/mtrag sheets --methods ours,history-aware-rag
      convcoa evaluate blind-score sheets
    """
    from langgraph_convcoa.evaluation.blind.sheets import make_sheets

    named = names_of(methods) if methods is not None else ()
    made = make_sheets([run, *(also or ())], data, out, methods=named, judges=judges, seed=seed)
    left = f"; {made.left_out:,} questions without an answer of each are left out" if made.left_out else ""
    typer.echo(f"{made.items:,} items with the answers of {', '.join(made.methods)}{left}")
    typer.echo(f"judges fill in verdicts.csv in {made.folder}/judge-1 and so on; keep {made.folder}/key.json from them")


def blind_score(
    out: Annotated[list[Path], typer.Argument(metavar="OUT...", help="Folders of sheets, counted together.")],
    seed: Annotated[int, option("S", "Of the intervals and tests.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Count what blind judges said: marks with intervals, wins and ties of each two methods, agreement of the judges.

    The judgements with the methods' names and the reasons are written to judgements.jsonl in each folder.
    """
    from langgraph_convcoa.evaluation.blind.score import score_sheets

    print_report(score_sheets(out, seed=seed), as_json)
