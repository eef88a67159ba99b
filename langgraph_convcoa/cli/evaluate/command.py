"""`convcoa evaluate`: the group of commands, and the measurement of verification."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.evaluate.qa import METHODS_HELP, qa
from langgraph_convcoa.cli.evaluate.retrieval import RETRIEVAL_HELP, retrieval
from langgraph_convcoa.cli.options import AsJson, add_removed, names_of, option

app = typer.Typer(
    help="Measure retrieval, answers and verification on your own data.", no_args_is_help=True, rich_markup_mode="rich"
)
# The help lists the commands in the order in which they are added.
app.command(epilog=RETRIEVAL_HELP)(retrieval)
app.command(epilog=METHODS_HELP)(qa)
add_removed(app, "planner", "python -m experiments.planner")
add_removed(app, "blind", "python -m experiments.blind sheets")
add_removed(app, "blind-score", "python -m experiments.blind score")
add_removed(app, "reader", "python -m experiments.graph_reader")
add_removed(app, "costs", "python -m experiments.costs")
add_removed(app, "memory", "python -m experiments.memory")
add_removed(app, "guesses", "convcoa evaluate verification")
add_removed(app, "faithfulness", "convcoa evaluate verification")


@app.command()
def verification(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA]", help="Claims or rated answers, .jsonl(.gz); the package's test claims by default."),
    ] = None,
    verifiers: Annotated[
        str, option("A,B", "default, lexical, CrossEncoders by name or folder, or trained files.")
    ] = "default,lexical",
    as_json: AsJson = False,
) -> None:
    """Show what verifiers accept of true and false claims, by kind: AUC, calibration, milliseconds a claim.

    Of answers that people rated (rows of response, passages, faithfulness): how verifiers agree with the ratings.

    [bold]Examples[/bold]
      convcoa evaluate verification
      convcoa evaluate verification --verifiers default,cross-encoder/nli-deberta-v3-base
      convcoa evaluate verification claims.jsonl.gz --json
      convcoa evaluate verification judgements.jsonl.gz
    """
    from langgraph_convcoa.datasets.labelled_claims import has_ratings, packaged_claims, read_claims, read_rated_answers
    from langgraph_convcoa.evaluation.verification.answers import evaluate_ratings
    from langgraph_convcoa.evaluation.verification.claims import evaluate_verification

    if data is not None and has_ratings(data):
        print_report(evaluate_ratings(list(read_rated_answers(data)), names_of(verifiers), progress=True), as_json)
        return
    claims = packaged_claims("test") if data is None else list(read_claims(data))
    print_report(evaluate_verification(claims, names_of(verifiers), progress=True), as_json)
