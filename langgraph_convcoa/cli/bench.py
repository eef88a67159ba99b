"""`convcoa bench`: benchmarks of the retriever, its encoder and its training on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.bench_training import training
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson, names_of
from langgraph_convcoa.errors import InputError, one_of

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True, rich_markup_mode="rich")
app.command()(training)


@app.command()
def scoring(
    patterns: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Number of patterns; may be repeated. 400000 by default.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Queries at a time; may be repeated. 1 and 32 by default.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="product, float32, int8, faiss, approximate, approximate-passages (ANN indexes)."),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", min=1, metavar="N", help="Passages a query.")] = 100,
    dimension: Annotated[int, typer.Option(min=1, metavar="D", help="Length of a pattern.")] = 384,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Timed repetitions of each method.")] = 7,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the synthetic patterns and queries.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw time against size.")] = None,
    as_json: AsJson = False,
) -> None:
    """Time scoring beside the bare product and FAISS.

    [bold]Examples[/bold]

      convcoa bench scoring

      convcoa bench scoring --patterns 10000 --patterns 1000000 --methods product,float32,int8 --plot time.png

      convcoa bench scoring --patterns 100000 --methods float32,approximate
    """
    from langgraph_convcoa.evaluation.bench import scoring as bench
    from langgraph_convcoa.evaluation.bench.scoring_methods import METHODS
    from langgraph_convcoa.evaluation.reports.kit import check_picture, save_picture

    if plot is not None:
        check_picture(plot)
    chosen = names_of(methods) if methods is not None else METHODS
    report = bench.bench_scoring(
        patterns or (400_000,),
        batches=batch or (1, 32),
        methods=chosen,
        k=k,
        dimension=dimension,
        runs=runs,
        seed=seed,
        progress=True,
    )
    if plot is not None:
        save_picture(report.figure(), plot)
    print_report(report, as_json)


@app.command()
def encoder(
    model: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="An encoder; all-MiniLM-L6-v2 by default.")] = None,
    dtypes: Annotated[
        str | None, typer.Option(metavar="A,B", help="float32, bfloat16, torchao-int8; those installed by default.")
    ] = None,
    attention: Annotated[str, typer.Option(metavar="A,B", help="softmax, softmax1 (OutEffHop) or both.")] = "softmax,softmax1",
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of queries.jsonl and corpus.jsonl, to measure retrieval too.")
    ] = None,
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Only queries of this split.")] = None,
    queries: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N queries.")] = None,
    texts: Annotated[int, typer.Option(min=1, metavar="N", help="Texts that are timed.")] = 128,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Timed repetitions of each type.")] = 5,
    train_steps: Annotated[
        int, typer.Option(min=0, metavar="N", help="Train on the data with each attention for N steps, and measure again.")
    ] = 0,
    train_split: Annotated[str, typer.Option(metavar="NAME", help="What to train on.")] = "train",
    as_json: AsJson = False,
) -> None:
    """Measure an encoder's types: speed, memory, closeness to float32, retrieval, and outliers in its activations.

    [bold]Examples[/bold]

      convcoa bench encoder

      convcoa bench encoder --dtypes bfloat16,torchao-int8 --attention softmax --data data/abg_coqa --split dev

      convcoa bench encoder --data data/or_sharc --split dev --train-steps 200

      convcoa bench encoder --model trained/encoder --json
    """
    if train_steps and split in (None, train_split):
        raise InputError("--train-steps trains on a part of the data: name another to measure on with --split, such as dev")
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.evaluation.bench import encoder as bench
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.retrieval.encoders.outlier_free import ATTENTIONS

    report = bench.bench_encoder(
        model or DEFAULT_ENCODER,
        dtypes=[one_of("--dtypes", name, bench.TYPES) for name in names_of(dtypes)] if dtypes is not None else None,
        attentions=[one_of("--attention", name, ATTENTIONS) for name in names_of(attention)],
        dataset=load_dataset(data, split=split) if data is not None else None,
        queries=queries,
        texts=texts,
        runs=runs,
        train=load_dataset(data, split=train_split) if data is not None and train_steps else None,
        steps=train_steps,
        progress=True,
    )
    print_report(report, as_json)
