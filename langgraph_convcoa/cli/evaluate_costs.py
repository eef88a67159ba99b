"""`convcoa evaluate costs`: what methods cost under one script, ours beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson
from langgraph_convcoa.errors import InputError


def costs(
    script: Annotated[
        Path | None,
        typer.Argument(metavar="SCRIPT", help="A script of questions, JSON; made ones without it.", show_default=False),
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="A,B", help="Methods, as of convcoa evaluate qa.")
    ] = "ours,react,self-ask,search-in-the-chain",
    sub_questions: Annotated[str, typer.Option(metavar="N,M", help="Lengths of made chains, 1 to 20.")] = "1,2,4,6",
    right: Annotated[str, typer.Option(metavar="P,Q", help="Shares of right guesses of made chains, 0 to 1.")] = "0,0.5,1",
    questions: Annotated[int, typer.Option(min=1, metavar="N", help="Made questions a cell of the table.")] = 8,
    sentences: Annotated[int, typer.Option(min=1, max=9, metavar="N", help="Sentences of a made passage.")] = 5,
    k: Annotated[int, typer.Option(min=1, max=100, metavar="K", help="Passages a search.")] = 5,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the made questions.")] = 0,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the table as .md, or with the curves as .html.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curves, as .png, .svg or .pdf.", show_default=False)
    ] = None,
    save_script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the made script, to be edited.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count model calls and tokens of methods under one script: the same replies and tokenizer for all, no model needed.

    The scripted model is served over HTTP on this machine in the OpenAI wire format. The counts are of the methods'
    structures; what a real model spends is measured by convcoa evaluate qa --model.

    [bold]Examples[/bold]

      convcoa evaluate costs --report costs.html --plot costs.png

      convcoa evaluate costs my-script.json --methods ours,ours-without-alignment,chain-of-action --json
    """
    from langgraph_convcoa.evaluation.costs.measure import measure_costs
    from langgraph_convcoa.evaluation.costs.scripted import Script, load_script, make_script
    from langgraph_convcoa.evaluation.methods.registry import check_methods
    from langgraph_convcoa.evaluation.reports.kit import check_page, check_picture, save_picture

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise InputError("--methods names no method")
    check_methods(names)
    if report is not None:
        check_page(report)
    if plot is not None:
        check_picture(plot)
    if script is not None:
        asked = load_script(script)
    else:
        lengths, shares = _numbers(sub_questions, "--sub-questions", 1, 20), _numbers(right, "--right", 0, 1)
        parts = [make_script(int(n), share, questions, seed=seed, sentences=sentences) for share in shares for n in lengths]
        asked = Script(tuple(question for part in parts for question in part.questions))
    if save_script is not None:
        asked.save(save_script)
    found = measure_costs(asked, names, k=k, progress=True)
    if report is not None:
        found.page().save(report)
    if plot is not None:
        save_picture(found.figure(), plot)
    print_report(found, as_json)


def _numbers(text: str, option: str, low: float, high: float) -> list[float]:
    try:
        numbers = list(dict.fromkeys(float(part) for part in text.split(",") if part.strip()))
    except ValueError:
        numbers = []
    whole = option == "--sub-questions"
    if not numbers or any(not low <= number <= high or (whole and number % 1) for number in numbers):
        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{option} takes {kind} from {low:g} to {high:g} with commas between them, not {text!r}")
    return numbers
