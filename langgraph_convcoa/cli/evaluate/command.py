"""`convcoa evaluate`: the measurements of retrieval and verification.

`qa` has those of answers, `planner` those of planners, `blind` people's judgements of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.cli.evaluate.qa import METHODS_HELP, qa
from langgraph_convcoa.cli.options import AsJson, NoCache, add_removed, names_of, option
from langgraph_convcoa.evaluation.retrieval.methods import METHODS, READERS

app = typer.Typer(
    help="Measure retrieval, answers and verification on your own data.", no_args_is_help=True, rich_markup_mode="rich"
)
_FOLDERS = "Folders of queries.jsonl(.gz) and corpus.jsonl(.gz)"
RETRIEVAL_HELP = "\n\n".join(
    [
        "[bold]Methods[/bold] (texts that the encoder reads a question with t earlier turns)",
        *(f"{name} ({one.texts}): {one.description}" for name, one in METHODS.items()),
        f"NAME-parts: the text of {', '.join(READERS)}, over the parts that long passages are split into for hybrid",
        "NAME-hybrid: the same text, searched by untrained without a history",
    ]
)
"""The end of the command's help."""


def retrieval(
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help=f"{_FOLDERS}, or QReCC, TopiOCQA, QuAC, CoQA, MTRAG as published.")
    ],
    model: Annotated[Path | None, option("DIR", "Measure a model that convcoa train made, as `trained`.")] = None,
    index: Annotated[Path | None, option("DIR", "Search this index in place of the data's own passages.")] = None,
    methods: Annotated[
        str | None,
        option(
            "A,B",
            "See below; peers are those of other papers and the plain ones that what is given allows.",
        ),
    ] = None,
    baseline: Annotated[str | None, option("A", "Test the others against this method; untrained, or the first.")] = None,
    split: Annotated[
        str | None, option("NAME", "Only queries of this split; dev is the part that training leaves out where there is none.")
    ] = None,
    distractors: Annotated[
        list[str] | None, option("FILE:N", "The first N passages of a corpus file join every pool; may be repeated.")
    ] = None,
    lexical_weight: Annotated[float | None, option("W", "Weight of BM25, the same for all methods.", min=0.0)] = None,
    lexical_history: Annotated[
        float | None, option("W", "Weight of BM25 of a follow-up with the words of its turns, likewise.", min=0.0)
    ] = None,
    encoder: Annotated[str | None, option("NAME", "Encoder; all-MiniLM-L6-v2 by default.")] = None,
    encoder_dtype: Annotated[str, option("TYPE", "What passages are encoded in: int8 or float32.")] = "int8",
    max_passages: Annotated[
        int | None, option("N", "Keep the gold passages and the first others of a large corpus.", min=1)
    ] = None,
    rewriter: Annotated[str | None, option("NAME|DIR", "T5 that rewrites, such as castorini/t5-base-canard.")] = None,
    answerer: Annotated[str | None, option("NAME|DIR", "T5 that guesses the answer, for convgqr.")] = None,
    dual: Annotated[Path | None, option("DIR", "Model of convcoa train --dual-question.")] = None,
    seed: Annotated[int, option("S", "Of the intervals and tests.", min=0)] = 0,
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
    weights = {"lexical_weight": lexical_weight, "lexical_history": lexical_history}
    options: dict[str, Any] = {
        "methods": names_of(methods) if methods is not None else None,
        "model": model,
        "baseline": baseline,
        "distractors": [document for specification in distractors or () for document in load_distractors(specification)],
        "index": index,
        "encoder": SentenceTransformerEncoder(encoder or DEFAULT_ENCODER, dtype=encoder_dtype),
        "cache": None if no_cache else open_cache(),
        "progress": True,
        "settings": {name: value for name, value in weights.items() if value is not None},
        "seed": seed,
        "rewriter": rewriter,
        "answerer": answerer,
        "dual": dual,
    }
    if len(loaded) == 1:
        dataset, part = loaded[0]
        print_report(evaluate_retrieval(dataset, part=part, **options), as_json)
        return
    parts = [part for _, part in loaded]
    print_report(evaluate_sources([dataset for dataset, _ in loaded], parts=parts, **options), as_json)


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
        typer.Argument(metavar="[DATA]", help="Labelled claims, .jsonl(.gz); the package's own test claims by default."),
    ] = None,
    verifiers: Annotated[
        str, option("A,B", "default, lexical, CrossEncoders by name or folder, or trained files.")
    ] = "default,lexical",
    as_json: AsJson = False,
) -> None:
    """Show what verifiers accept of true and false claims, by kind: AUC, calibration, milliseconds a claim.

    [bold]Examples[/bold]
      convcoa evaluate verification
      convcoa evaluate verification --verifiers default,cross-encoder/nli-deberta-v3-base
      convcoa evaluate verification claims.jsonl.gz --json
    """
    from langgraph_convcoa.datasets.labelled_claims import packaged_claims, read_claims
    from langgraph_convcoa.evaluation.verification.claims import evaluate_verification

    claims = packaged_claims("test") if data is None else list(read_claims(data))
    print_report(evaluate_verification(claims, names_of(verifiers), progress=True), as_json)
