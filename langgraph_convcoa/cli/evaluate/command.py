"""`convcoa evaluate`: the measurements of retrieval and verification.

`qa` has those of answers, `planner` those of planners, `blind` people's judgements of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.documents import open_cache
from langgraph_convcoa.cli.evaluate.blind import blind, blind_score
from langgraph_convcoa.cli.evaluate.planner import planner
from langgraph_convcoa.cli.evaluate.qa import METHODS_HELP, qa
from langgraph_convcoa.cli.options import AsJson, NoCache, Plot, add_removed, names_of, option
from langgraph_convcoa.errors import InputError
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
app.command()(planner)
app.command()(blind)
app.command("blind-score")(blind_score)
add_removed(app, "reader", "python -m experiments.graph_reader")
add_removed(app, "costs", "python -m experiments.costs")
add_removed(app, "memory", "python -m experiments.memory")


@app.command()
def verification(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA]", help="Labelled claims, .jsonl(.gz); the package's own test claims by default."),
    ] = None,
    verifiers: Annotated[
        str, option("A,B", "default (word rules), lexical, CrossEncoders by name or folder, or trained files.")
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


@app.command()
def faithfulness(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Judgements, .jsonl or .jsonl.gz.")],
    history: Annotated[bool, option(None, "Earlier answers count as references too.", "--history")] = False,
    faithful_from: Annotated[float, option("R", "The lowest rating that counts as faithful.")] = 3.0,
    seed: Annotated[int, option("S", "Of the intervals.", min=0)] = 0,
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
    from langgraph_convcoa.evaluation.verification.faithfulness import evaluate_faithfulness

    report = evaluate_faithfulness(file, history=history, faithful_from=faithful_from, seed=seed, progress=True)
    print_report(report, as_json, plot)


@app.command()
def guesses(
    data: Annotated[list[Path], typer.Argument(metavar="DATA...", help=f"{_FOLDERS}; one, or several for --fit.")],
    sample: Annotated[int | None, option("N", "How many questions; 300, or 3000 of each for --fit.", min=2)] = None,
    seed: Annotated[int | None, option("S", "Which questions; 0, or 1 for --fit.", min=0)] = None,
    split: Annotated[
        str | None,
        option(
            "NAME", "Split of the questions; dev, or where there is none the conversations that the score was not fitted on."
        ),
    ] = None,
    no_history: Annotated[bool, option(None, "Tell the score nothing of the conversation.", "--no-history")] = False,
    right: Annotated[
        list[float] | None, option("P", "Share of right guesses, for what T saves; may be repeated: 0.5, 0.8.")
    ] = None,
    fit: Annotated[bool, option(None, "Fit the weights of the score on the training part instead.", "--fit")] = False,
    texts: Annotated[
        Path | None, option("DIR", "DATA is a file of labelled guesses: where the data sets are whose passages it names.")
    ] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Discriminate right guesses from other answers of the same passage, and work out what T saves.

    [bold]Examples[/bold]
      convcoa evaluate guesses data/squad2 --sample 1000
      convcoa evaluate guesses data/quac_dev --sample 1000 --right 0.7 --plot savings.png
      convcoa evaluate guesses data/squad2 data/abg_coqa data/quac_dev --fit
      convcoa evaluate guesses labelled.jsonl --texts data
    """
    from langgraph_convcoa.evaluation.verification.guess_fit import FIT_SAMPLE, FIT_SEED, fit_guesses
    from langgraph_convcoa.evaluation.verification.guesses import RIGHT_SHARES, evaluate_guesses

    if fit:
        if plot is not None or split is not None or no_history or right:
            raise InputError("--fit takes --sample, --seed and --json alone.")
        print_report(fit_guesses(data, n=sample or FIT_SAMPLE, seed=FIT_SEED if seed is None else seed), as_json)
        return
    if len(data) != 1:
        raise InputError("several data sets are for --fit; give one.")
    if texts is not None:
        from langgraph_convcoa.evaluation.verification.labelled import evaluate_labelled
        from langgraph_convcoa.retrieval.encoders.choice import as_encoder

        if plot is not None or split is not None or no_history or right or sample or seed:
            raise InputError("--texts takes --json alone.")
        print_report(evaluate_labelled(data[0], texts, as_encoder(None)), as_json)
        return
    shares, history = right or RIGHT_SHARES, not no_history
    report = evaluate_guesses(
        data[0], n=sample or 300, seed=seed or 0, split=split, history=history, right_shares=shares, progress=True
    )
    print_report(report, as_json, plot)
