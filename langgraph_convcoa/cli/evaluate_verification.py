"""`convcoa evaluate faithfulness` and `convcoa evaluate guesses`: whether verification can be trusted. No model is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson
from langgraph_convcoa.errors import InputError

Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curves, as .png, .svg or .pdf.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command()(faithfulness)
    app.command()(guesses)


def faithfulness(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Judgements, .jsonl or .jsonl.gz.", show_default=False)],
    history: Annotated[bool, typer.Option("--history", help="Earlier answers count as references too.")] = False,
    faithful_from: Annotated[float, typer.Option(metavar="R", help="The lowest rating that counts as faithful.")] = 3.0,
    bins: Annotated[int, typer.Option(min=1, metavar="N", help="Of the reliability curve.")] = 5,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Of the intervals.")] = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Compare the faith scores with human ratings of answers: AUC, Spearman, reliability, suggested weights and T.

    A row has passages (texts), response, faithfulness (or rating), and where known conversation_id, turns and ratings. Weights
    and T are fitted leaving out one conversation at a time; the intervals are a bootstrap over conversations.

    [bold]Examples[/bold]

      convcoa evaluate faithfulness data/mtrag_faithfulness/judgements.jsonl.gz

      convcoa evaluate faithfulness judged.jsonl --faithful-from 4 --plot reliability.png
    """
    from langgraph_convcoa.evaluation.reports.kit import check_picture, save_picture
    from langgraph_convcoa.evaluation.verification.faithfulness import evaluate_faithfulness

    if plot is not None:
        check_picture(plot)
    report = evaluate_faithfulness(file, history=history, faithful_from=faithful_from, bins=bins, seed=seed, progress=True)
    if plot is not None:
        save_picture(report.figure(), plot)
    print_report(report, as_json)


def guesses(
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Folder of queries.jsonl(.gz) and corpus.jsonl(.gz); several for --fit.",
            show_default=False,
        ),
    ],
    sample: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="How many questions; 300, or 3000 of each for --fit.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="Which questions; 0, or 1 for --fit.", show_default=False)
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Split of the questions; dev, or where there is none the conversations that the score was not fitted on.",
            show_default=False,
        ),
    ] = None,
    distractors: Annotated[int, typer.Option(min=0, metavar="N", help="Further passages of the same title.")] = 0,
    no_history: Annotated[bool, typer.Option("--no-history", help="Tell the score nothing of the conversation.")] = False,
    right: Annotated[
        list[float] | None,
        typer.Option(
            metavar="P", help="Share of right guesses, for what T saves; may be repeated: 0.5, 0.8.", show_default=False
        ),
    ] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Fit the weights of the score on the training part instead.")] = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Tell right guesses from other answers of the same passage, and work out what T saves.

    [bold]Examples[/bold]

      convcoa evaluate guesses data/squad2 --sample 1000

      convcoa evaluate guesses data/quac_dev --sample 1000 --right 0.7 --plot savings.png

      convcoa evaluate guesses data/squad2 data/abg_coqa data/quac_dev --fit
    """
    from langgraph_convcoa.evaluation.reports.kit import check_picture, save_picture
    from langgraph_convcoa.evaluation.verification.guess_fit import FIT_SAMPLE, FIT_SEED, fit_guesses
    from langgraph_convcoa.evaluation.verification.guesses import RIGHT_SHARES, evaluate_guesses

    if fit:
        if plot is not None or split is not None or distractors or no_history or right:
            raise InputError("--fit takes --sample, --seed and --json alone.")
        fitted = fit_guesses(data, n=sample or FIT_SAMPLE, seed=FIT_SEED if seed is None else seed)
        print_report(fitted, as_json)
        return
    if len(data) != 1:
        raise InputError("several data sets are for --fit; give one.")
    if plot is not None:
        check_picture(plot)
    report = evaluate_guesses(
        data[0],
        n=sample or 300,
        seed=seed or 0,
        split=split,
        distractors=distractors,
        history=not no_history,
        right_shares=right or RIGHT_SHARES,
        progress=True,
    )
    if plot is not None:
        save_picture(report.figure(), plot)
    print_report(report, as_json)
