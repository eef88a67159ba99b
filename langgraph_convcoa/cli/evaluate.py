"""`convcoa evaluate`: the measurements behind the numbers that the library states."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli import evaluate_verification as cli_evaluate_verification
from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.cli.evaluate_costs import costs
from langgraph_convcoa.cli.evaluate_qa import qa
from langgraph_convcoa.cli.options import AsJson, NoCache
from langgraph_convcoa.errors import InputError

app = typer.Typer(
    help="Measure retrieval, answers and verification on your own data.", no_args_is_help=True, rich_markup_mode="rich"
)


@app.command()
def retrieval(
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Folders of queries.jsonl(.gz) and corpus.jsonl(.gz), or QReCC, TopiOCQA, QuAC, CoQA, MTRAG as published.",
            show_default=False,
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Measure a model that convcoa train made, as `trained`.", show_default=False),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Search this index in place of the data's own passages.", show_default=False),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="bm25, question, question-parts, two-turns, history, rewrite, dense, hybrid (or hopfield), untrained-dense, "
            "untrained, trained-dense, trained.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="A", help="Test the others against this method; untrained, or the first.", show_default=False),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only queries of this split; dev is the part that training leaves out where there is none.",
            show_default=False,
        ),
    ] = None,
    distractors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE:N",
            help="The first N passages of a corpus file join every pool; may be repeated.",
            show_default=False,
        ),
    ] = None,
    lexical_weight: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="W", help="Weight of the lexical channel, the same for all.", show_default=False),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Encoder; all-MiniLM-L6-v2 by default.", show_default=False)
    ] = None,
    encoder_dtype: Annotated[
        str, typer.Option("--encoder-dtype", metavar="TYPE", help="What the encoder computes in; see bench encoder.")
    ] = "auto",
    max_passages: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Keep the gold passages and the first others of a large corpus.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Of the intervals and tests.")] = 0,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Compare retrieval methods: MRR, Recall@k, nDCG@10 for conversational questions, with intervals and paired tests.

    Of several data sets each has a table, and one is of the mean over them. A row of queries.jsonl has an id, a question, a
    history (pairs of question and answer), gold (passage ids) and, where known, rewrite, split and conversation_id; a row of
    corpus.jsonl an id, a title and a text.

    [bold]Examples[/bold]

      convcoa evaluate retrieval data/mtrag --distractors data/squad2/corpus.jsonl.gz:3000

      convcoa evaluate retrieval data/abg_coqa data/pacific --split dev --model my-model --methods bm25,untrained,trained

      convcoa evaluate retrieval topiocqa/ --split dev --index wiki-index --json
    """
    from langgraph_convcoa.datasets.passages import load_distractors
    from langgraph_convcoa.datasets.read import load_part
    from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval, evaluate_sources
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

    loaded = [load_part(path, split, max_passages=max_passages) for path in data]
    options: dict[str, Any] = {
        "methods": [name.strip() for name in methods.split(",")] if methods is not None else None,
        "model": model,
        "baseline": baseline,
        "distractors": [document for specification in distractors or () for document in load_distractors(specification)],
        "index": index,
        "encoder": encoder
        if encoder_dtype == "auto"
        else SentenceTransformerEncoder(encoder or DEFAULT_ENCODER, dtype=encoder_dtype),
        "cache": None if no_cache else open_cache(),
        "progress": True,
        "settings": {} if lexical_weight is None else {"lexical_weight": lexical_weight},
        "seed": seed,
    }
    if len(loaded) == 1:
        dataset, part = loaded[0]
        print_report(evaluate_retrieval(dataset, part=part, **options), as_json)
        return
    parts = [part for _, part in loaded]
    print_report(evaluate_sources([dataset for dataset, _ in loaded], parts=parts, **options), as_json)


# The help lists the commands in the order in which they are added.
app.command()(qa)
app.command()(costs)
cli_evaluate_verification.register(app)


@app.command()
def memory(
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help="Folders of queries.jsonl(.gz) and corpus.jsonl(.gz).")
    ],
    parts: Annotated[
        str, typer.Option(metavar="A,B", help="costs, mentions (an early round found again), recall (of answers).")
    ] = "costs,mentions,recall",
    rounds: Annotated[int, typer.Option(min=10, metavar="N", help="Rounds of the long conversation.")] = 100,
    probes: Annotated[int, typer.Option(min=1, metavar="N", help="Probes of each half, for mentions.")] = 200,
    seed: Annotated[int, typer.Option(metavar="S", help="Which dialogs, probes and pairs.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the costs, as .png, .svg or .pdf.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """What long conversations cost, whether early rounds are found again, and which answers are recalled.

    [bold]Examples[/bold]

      convcoa evaluate memory data/pacific data/mtrag data/squad2

      convcoa evaluate memory data/mtrag --parts costs --rounds 60 --plot rounds.png
    """
    from langgraph_convcoa.evaluation.memory.measure import evaluate_memory
    from langgraph_convcoa.evaluation.reports.kit import check_picture, save_picture

    chosen = [name.strip() for name in parts.split(",") if name.strip()]
    if plot is not None:
        check_picture(plot)
        if "costs" not in chosen:
            raise InputError("--plot draws the part costs: add it to --parts")
    cache = None if no_cache else open_cache()
    report = evaluate_memory(data, parts=chosen, rounds=rounds, probes=probes, seed=seed, cache=cache, progress=True)
    if plot is not None:
        save_picture(report.figure(), plot)
    print_report(report, as_json)
