"""`convcoa bench training`: cost of training, compared with a plain dual encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson, NoCache


def training(
    data: Annotated[list[Path], typer.Argument(metavar="DATA...", help="Folders or files of conversations.")],
    methods: Annotated[
        str, typer.Option(metavar="A,B", help="head, query-encoder, dual-question, dual (both encoders).")
    ] = "head,dual-question",
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Of each training.")] = 200,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Examples a step.")] = 32,
    evaluations: Annotated[int, typer.Option(min=1, metavar="N", help="How often each is measured.")] = 10,
    questions: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many questions of the dev parts.")] = 500,
    distractors: Annotated[
        str | None, typer.Option(metavar="FILE:N", help="More passages to search: the first N of a corpus file.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Of the order of the data.")] = 0,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Train by several methods on the same data and measure each on the way: quality, time to reach it, memory.

    The training parts are trained on, the development parts measured with.

    [bold]Examples[/bold]

      convcoa bench training data/abg_coqa data/or_sharc

      convcoa bench training data/abg_coqa --methods head,query-encoder,dual-question,dual --steps 100 --json
    """
    from langgraph_convcoa.cli.documents import open_cache
    from langgraph_convcoa.datasets.passages import load_distractors
    from langgraph_convcoa.evaluation.bench.training_cost import training_cost
    from langgraph_convcoa.training.data import load_training_data

    report = training_cost(
        load_training_data(data, part="train", invalid="skip"),
        load_training_data(data, part="dev", distractors=load_distractors(distractors) if distractors else (), invalid="skip"),
        methods=[{"tower": "query-encoder"}.get(name.strip(), name.strip()) for name in methods.split(",")],
        steps=steps,
        batch_size=batch,
        evaluations=evaluations,
        questions=questions,
        seed=seed,
        cache=None if no_cache else open_cache(),
        progress=True,
    )
    print_report(report, as_json)
