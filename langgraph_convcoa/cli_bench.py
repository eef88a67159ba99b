"""`convcoa bench`: how fast the retriever is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli_options import AsJson

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True, rich_markup_mode="rich")
_WIDTH = 120


@app.callback()
def _root() -> None:
    """Keep `scoring` a subcommand: a single one would be merged into `bench` itself."""


@app.command()
def scoring(
    patterns: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Number of patterns; may be repeated. 400000 by default.", show_default=False),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Queries at a time; may be repeated. 1 and 32 by default.", show_default=False),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="product, float32, float16, bfloat16, int8, faiss, langchain, approximate, approximate-passages.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", min=1, metavar="N", help="Passages a query.")] = 100,
    dimension: Annotated[int, typer.Option(min=1, metavar="D", help="Length of a pattern.")] = 384,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Timed repetitions of each method.")] = 7,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the made-up patterns and queries.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw time against size.", show_default=False)] = None,
    approximate_up_to: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Build no approximate stage for more patterns than this.", show_default=False),
    ] = None,
    graphs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the graphs of approximate stages here for the next run.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time scoring beside the bare product, FAISS and LangChain's store in memory.

    [bold]Examples[/bold]

      convcoa bench scoring

      convcoa bench scoring --patterns 10000 --patterns 1000000 --methods product,float32,int8 --plot time.png

      convcoa bench scoring --patterns 100000 --methods float32,approximate --graphs graphs
    """
    from langgraph_convcoa.console import consoles, print_json
    from langgraph_convcoa.evaluation import bench_scoring as bench
    from langgraph_convcoa.evaluation.bench_methods import METHODS

    chosen = [name.strip() for name in methods.split(",")] if methods is not None else METHODS
    report = bench.bench_scoring(
        patterns or (400_000,),
        batches=batch or (1, 32),
        methods=chosen,
        k=k,
        dimension=dimension,
        runs=runs,
        seed=seed,
        approximate_up_to=approximate_up_to,
        graphs=graphs,
        progress=True,
    )
    if plot is not None:
        bench.plot(report, plot)
    if as_json:
        print_json(report.to_dict())
        return
    out, _ = consoles()
    if not out.is_terminal:
        out.width = _WIDTH
    out.print(report)
