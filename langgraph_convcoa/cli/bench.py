"""`convcoa bench`: benchmarks of the retriever, its encoder and its training on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson, NoCache, Plot, names_of, option
from langgraph_convcoa.errors import InputError

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True, rich_markup_mode="rich")


@app.command()
def training(
    data: Annotated[list[Path], typer.Argument(metavar="DATA...", help="Folders or files of conversations.")],
    methods: Annotated[str, option("A,B", "head, query-encoder, dual-question, dual (both encoders).")] = "head,dual-question",
    steps: Annotated[int, option("N", "Of each training.", min=1)] = 200,
    batch: Annotated[int, option("N", "Examples a step.", min=1)] = 32,
    evaluations: Annotated[int, option("N", "How often each is measured.", min=1)] = 10,
    questions: Annotated[int, option("N", "At most so many questions of the dev parts.", min=1)] = 500,
    distractors: Annotated[str | None, option("FILE:N", "More passages to search: the first N of a corpus file.")] = None,
    seed: Annotated[int, option("S", "Of the order of the data.", min=0)] = 0,
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


@app.command()
def scoring(
    patterns: Annotated[list[int] | None, option("N", "Number of patterns; may be repeated. 400000 by default.")] = None,
    batch: Annotated[list[int] | None, option("N", "Queries at a time; may be repeated. 1 and 32 by default.")] = None,
    methods: Annotated[str | None, option("A,B", "product, float32, int8, faiss.")] = None,
    k: Annotated[int, option("N", "Passages a query.", "-k", "--k", min=1)] = 100,
    dimension: Annotated[int, option("D", "Length of a pattern.", min=1)] = 384,
    runs: Annotated[int, option("N", "Timed repetitions of each method.", min=1)] = 7,
    seed: Annotated[int, option("S", "Of the synthetic patterns and queries.")] = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Time scoring, compared with the bare product and FAISS.

    [bold]Examples[/bold]
      convcoa bench scoring
      convcoa bench scoring --patterns 10000 --patterns 1000000 --methods product,float32,int8 --plot time.png
    """
    from langgraph_convcoa.evaluation.bench import scoring as bench
    from langgraph_convcoa.evaluation.bench.scoring import METHODS

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
    print_report(report, as_json, plot)


@app.command()
def encoder(
    model: Annotated[str | None, option("NAME|DIR", "An encoder; all-MiniLM-L6-v2 by default.")] = None,
    data: Annotated[Path | None, option("DIR", "Folder with passages; the demonstration's text by default.")] = None,
    passages: Annotated[int, option("N", "Passages that are encoded with their windows.", min=1)] = 60,
    runs: Annotated[int, option("N", "Timed repetitions.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """Time the encoding of passages and their windows, in int8 and float32, against sentence-transformers.

    [bold]Examples[/bold]
      convcoa bench encoder
      convcoa bench encoder --model trained/encoder --data data/squad2 --json
    """
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.evaluation.bench.indexing import bench_indexing
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER

    data_set = load_dataset(data) if data is not None else None
    report = bench_indexing(model or DEFAULT_ENCODER, dataset=data_set, passages=passages, runs=runs, progress=True)
    print_report(report, as_json)


@app.command()
def question(
    passages: Annotated[int, option("N", "Passages that are searched.", min=1)] = 6_000,
    turns: Annotated[int, option("N", "Earlier turns of the conversation, known to the process.", min=1)] = 8,
    runs: Annotated[int, option("N", "Timed repetitions of a retrieval.", min=1)] = 20,
    commands: Annotated[int, option("N", "Timed repetitions of the command; 0 leaves it out.", min=0)] = 5,
    as_json: AsJson = False,
) -> None:
    """Time a follow-up's retrieval, and the processor time of `convcoa search demo` with a warm cache.

    [bold]Examples[/bold]
      convcoa bench question
      convcoa bench question --passages 60000 --turns 20 --commands 0 --json
    """
    from langgraph_convcoa.evaluation.bench.question import bench_question

    print_report(bench_question(passages, turns=turns, runs=runs, commands=commands, progress=True), as_json)


@app.command()
def engine(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder of queries.jsonl and corpus.jsonl.")],
    to: Annotated[str, option("URL", "The engine, with a collection that is made for this.")],
    candidates: Annotated[str, option("N,M", "Numbers of candidates that are compared.")] = "25,50,100,200",
    split: Annotated[str | None, option("NAME", "Only queries of this split.")] = None,
    questions: Annotated[int | None, option("N", "Only the first N questions.", min=1)] = None,
    distractors: Annotated[str | None, option("FILE:N", "More passages to search: the first N of a corpus file.")] = None,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Compare the rankings of an engine with those of the exact search over the same passages, which it is given first.

    With `exact=0` in the address, few passages are found by the engine's HNSW index as well.

    [bold]Examples[/bold]
      convcoa bench engine data/mtrag --to "postgresql://localhost/docs?collection=compared&exact=0"
      convcoa bench engine data/squad2 --split dev --questions 500 --to "postgresql://localhost/docs?collection=compared"
    """
    from langgraph_convcoa.cli.documents import open_cache
    from langgraph_convcoa.datasets.passages import load_distractors
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.evaluation.bench.engine import compare_engine
    from langgraph_convcoa.retrieval.engine.choose import open_engine

    numbers = names_of(candidates)
    if not all(number.isdecimal() for number in numbers):
        raise InputError(f"--candidates takes whole numbers, not {candidates!r}.")
    report = compare_engine(
        load_dataset(data, split=split),
        open_engine(to, timeout=120),
        candidates=[int(number) for number in numbers],
        questions=questions,
        distractors=load_distractors(distractors) if distractors else (),
        cache=None if no_cache else open_cache(),
        progress=True,
    )
    print_report(report, as_json)
