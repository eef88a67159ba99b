"""`convcoa evaluate`: measures retrieval, answers and verification on the user's data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli.console import print_report, warn
from langgraph_convcoa.cli.documents import documents_of, open_cache, open_retriever, place_of
from langgraph_convcoa.cli.options import (
    AsJson,
    BaseUrl,
    Docs,
    IndexPlace,
    NoCache,
    PassageCount,
    argument,
    grouped,
    names_of,
    option,
    panel,
)
from langgraph_convcoa.evaluation.methods.registry import EXTRACTIVE, METHODS, RETRIEVAL_METHODS, check_methods
from langgraph_convcoa.text.clean import printable

_METHODS = "closed-book,history-aware-rag,ours"
_asked, _compared, _run = map(panel, ("What is asked and searched", "What is compared", "The run"))

app = typer.Typer(
    help="Measure retrieval, answers and verification on your own data.", no_args_is_help=True, rich_markup_mode="rich"
)


def _methods_help(described: dict[str, str]) -> str:
    return "\n\n".join(["[bold]Methods[/bold]", *(f"{name}: {description}" for name, description in described.items())])


@dataclass(frozen=True)
class RetrievalCommand:
    """The options of `convcoa evaluate retrieval`."""

    split: Annotated[str | None, _asked("NAME", "Only queries of this split; dev is what training leaves out.")] = None
    distractors: Annotated[list[str] | None, _asked("FILE:N", "Search the first N of a file too; may be repeated.")] = None
    max_passages: Annotated[int | None, _asked("N", "Keep N passages: the gold ones, and the first others.", min=1)] = None
    index: Annotated[Path | None, _asked("DIR", "Search this index instead of the data's own passages.")] = None
    methods: Annotated[str | None, _compared("A,B", "See below.")] = None
    model: Annotated[Path | None, _compared("DIR", "A model that convcoa train made, measured as `trained`.")] = None
    baseline: Annotated[str | None, _compared("A", "Method to compare with; by default `untrained`, or the first.")] = None
    seed: Annotated[int, _compared("S", "Seed of the intervals and tests.", min=0)] = 0
    encoder: Annotated[str | None, _compared("NAME", "Encoder; all-MiniLM-L6-v2 by default.")] = None
    encoder_dtype: Annotated[str, _compared("TYPE", "What passages are encoded in: int8 (the default) or float32.")] = "int8"
    lexical_weight: Annotated[float | None, _compared("W", "Weight of BM25, the same for all methods.", min=0.0)] = None
    lexical_history: Annotated[float | None, _compared("W", "Weight of earlier turns in BM25.", min=0.0)] = None


@app.command(epilog=_methods_help(RETRIEVAL_METHODS))
@grouped(RetrievalCommand)
def retrieval(
    chosen: RetrievalCommand,
    data: Annotated[list[Path], argument("DATA...", "Folders of queries.jsonl and corpus.jsonl, or published data sets.")],
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Compare retrieval methods: MRR, Recall@k, All@k, nDCG@10 for questions in conversation, with intervals and paired tests.

    Several data sets have a table each, and a table of their mean. A row of queries.jsonl has an id, a question, a history
    (pairs of question and answer), gold (passage ids) and, if known, rewrite, split and conversation_id; a row of
    corpus.jsonl an id, a title and a text. Your own retriever is measured from Python: `evaluate_retrieval(further=...)`.

    [bold]Examples[/bold]
      convcoa evaluate retrieval data/mtrag --distractors data/squad2/corpus.jsonl.gz:3000
      convcoa evaluate retrieval data/abg_coqa data/pacific --split dev --model my-model --methods bm25,untrained,trained
      convcoa evaluate retrieval topiocqa/ --split dev --index wiki-index --json
    """
    from langgraph_convcoa.datasets.read import load_distractors, load_part
    from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval, evaluate_sources
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

    loaded = [load_part(path, chosen.split, max_passages=chosen.max_passages) for path in data]
    weights = {"lexical_weight": chosen.lexical_weight, "lexical_history": chosen.lexical_history}
    options: dict[str, Any] = {
        **{name: getattr(chosen, name) for name in ("model", "baseline", "index", "seed")},
        "methods": names_of(chosen.methods) if chosen.methods is not None else None,
        "distractors": [document for part in chosen.distractors or () for document in load_distractors(part)],
        "encoder": SentenceTransformerEncoder(chosen.encoder or DEFAULT_ENCODER, dtype=chosen.encoder_dtype),
        "cache": None if no_cache else open_cache(),
        "progress": True,
        "settings": {name: value for name, value in weights.items() if value is not None},
    }
    if len(loaded) == 1:
        dataset, part = loaded[0]
        print_report(evaluate_retrieval(dataset, part=part, **options), as_json)
        return
    parts = [part for _, part in loaded]
    print_report(evaluate_sources([dataset for dataset, _ in loaded], parts=parts, **options), as_json)


@dataclass(frozen=True)
class QACommand:
    """The options of `convcoa evaluate qa`."""

    docs: Docs = None
    index: IndexPlace = None
    k: PassageCount = None
    sample: Annotated[int, _asked("N", "Number of questions, from whole conversations; 1000 by default.", min=1)] = 1000
    seed: Annotated[int, _asked("S", "Seed of the draw of questions; 0 by default.")] = 0
    split: Annotated[str, _asked("NAME", "Split, or `all`. Default: dev, or else a fifth of the conversations.")] = "dev"
    methods: Annotated[str | None, _compared("A,B", f"See below; {_METHODS} with a model, else {EXTRACTIVE}.")] = None
    model: Annotated[str | None, _compared("NAME", "Chat model of the methods.", "--model")] = None
    base_url: BaseUrl = None
    gold_history: Annotated[bool, _compared(None, "Take the data's answers as earlier turns.", "--gold-history")] = False
    judge: Annotated[str | None, _compared("NAME", "Chat model that marks the answers and compares them.")] = None
    judge_base_url: Annotated[str | None, _compared("URL", "The judge's server; the model's by default.")] = None
    out: Annotated[Path | None, _run("DIR", "Folder of the run; one in convcoa-runs/ by default.")] = None
    max_tokens: Annotated[int | None, _run("N", "Start no question after N tokens; a larger N resumes.", min=1)] = None
    timeout: Annotated[float | None, _run("S", "Seconds to wait for a reply of a model; 60 by default.", min=1)] = None
    concurrency: Annotated[int, _run("N", "Conversations at the same time; 8 by default.", min=1)] = 8
    fresh: Annotated[bool, _run(None, "Start again if the folder holds a run.", "--fresh")] = False
    retry_failed: Annotated[bool, _run(None, "Ask again the failed questions and those after them.", "--retry-failed")] = False


@app.command(epilog=_methods_help({name: one.description for name, one in METHODS.items()}))
@grouped(QACommand)
def qa(
    chosen: QACommand,
    data: Annotated[Path, argument("DATA", "Folder of queries.jsonl and corpus.jsonl, or a published data set.")],
    as_json: AsJson = False,
) -> None:
    """Ask questions over a whole corpus, and measure the answers of methods: quality, calls, tokens, seconds.

    Every method answers the same conversations with the same model, retriever and k. Its history has its own earlier answers.
    All methods are tested against the first. Report, answers and model replies are kept in a folder. The same command resumes
    a run that was stopped, and pays for no reply twice. A question that fails is counted, and the run continues.

    A row of queries.jsonl has an id and a question, and if known an answer (or answers), a conversation_id, a history (pairs
    of question and answer), gold (passage ids) and a split; a row of corpus.jsonl an id and a text.

    [bold]Examples[/bold]
      convcoa evaluate qa data/squad2 --sample 1000 --seed 0
      convcoa evaluate qa data/mtrag --model openai:gpt-4.1-mini --methods closed-book,react,ours --sample 100
      convcoa evaluate qa data/mtrag --model qwen3 --base-url http://localhost:8000/v1 --methods ours,react
      convcoa evaluate qa data/mtrag --model gpt-4.1-mini --methods ours,history-aware-rag --judge gpt-4.1
      convcoa evaluate qa topiocqa/ --model gpt-4.1-mini --index wiki-index --max-tokens 2000000
    """
    methods = names_of(chosen.methods if chosen.methods is not None else _METHODS if chosen.model else EXTRACTIVE)
    check_methods(methods, model=chosen.model is not None)
    path = documents_of(chosen.docs, chosen.index)
    from langgraph_convcoa.evaluation.qa import RunPlan, evaluate_methods
    from langgraph_convcoa.evaluation.runs.run import RunSettings

    models = ("model", "base_url", "judge", "judge_base_url", "timeout")
    plan = RunPlan(
        data=data,
        methods=methods,
        split=None if chosen.split == "all" else chosen.split,
        retriever=(place_of(path), lambda: open_retriever(path, max_mb=1_000.0, progress=True)) if path else None,
        run=RunSettings(chosen.concurrency, chosen.gold_history, chosen.max_tokens),
        **{name: getattr(chosen, name) for name in (*models, "sample", "seed", "k", "out", "fresh", "retry_failed")},
    )
    report = evaluate_methods(plan, cache=open_cache(), notify=lambda text: typer.echo(printable(text), err=True))
    print_report(report, as_json)
    if report.partial:
        warn(f"the report is partial: {report.answered} of {report.planned} answers are there")
    typer.echo(f"report: {report.folder}/report.md", err=True)


@app.command()
def verification(
    data: Annotated[Path | None, argument("[DATA]", "Labelled claims; the package's test claims by default.")] = None,
    verifiers: Annotated[str, option("A,B", "default, lexical, CrossEncoders, or trained files.")] = "default,lexical",
    as_json: AsJson = False,
) -> None:
    """Show how many true and false claims of each kind verifiers accept, and their AUC, calibration and time per claim.

    [bold]Examples[/bold]
      convcoa evaluate verification
      convcoa evaluate verification --verifiers default,cross-encoder/nli-deberta-v3-base
      convcoa evaluate verification claims.jsonl.gz --json
    """
    from langgraph_convcoa.datasets.labelled_claims import packaged_claims, read_claims
    from langgraph_convcoa.evaluation.verification import evaluate_verification

    claims = packaged_claims("test") if data is None else list(read_claims(data))
    print_report(evaluate_verification(claims, names_of(verifiers), progress=True), as_json)
