"""`convcoa evaluate qa`: answers measured, of methods over a model or, without one, extracted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langgraph_convcoa.cli.console import print_report, warn
from langgraph_convcoa.cli.documents import documents_of, open_cache, open_retriever
from langgraph_convcoa.cli.options import DEFAULT_MAX_MB, AsJson, BaseUrl, Docs, IndexFolder, MaxMb, NoCache, PassageCount
from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.retrievers import BaseRetriever

    from langgraph_convcoa.evaluation.reports.figures import Prices

_METHODS = "closed-book,history-aware-rag,ours"


def qa(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Folder of queries.jsonl(.gz) and corpus.jsonl(.gz), or a data set in a published format.",
            show_default=False,
        ),
    ],
    sample: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="How many questions; with a model whole conversations until there are so many."),
    ] = 1000,
    seed: Annotated[int, typer.Option(metavar="S", help="Which questions.")] = 0,
    split: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Split of the questions, or all; dev is a fifth of them where there is no such split."
        ),
    ] = "dev",
    k: PassageCount = None,
    max_words: Annotated[int, typer.Option(min=1, metavar="N", help="Longest extracted answer; without a model.")] = 60,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Chat model of the methods; extracted answers without one.", show_default=False),
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="A,B", help="Several chat models, each with every method.", show_default=False)
    ] = None,
    base_url: BaseUrl = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help=f"See below; {_METHODS} by default.", show_default=False)
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="A", help="Test the others against this row; the first.", show_default=False)
    ] = None,
    docs: Docs = None,
    index: IndexFolder = None,
    max_mb: MaxMb = DEFAULT_MAX_MB,
    gold_history: Annotated[
        bool, typer.Option("--gold-history", help="Earlier turns have the data's answers, not the method's own.")
    ] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="threshold=A,B|k=A,B", help="Ours again for each of these values; may be repeated.", show_default=False
        ),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(metavar="NAME", help="Chat model that judges the answers (GPT-EM).", show_default=False)
    ] = None,
    judge_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The judge's server; that of the model.", show_default=False)
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Conversations at the same time.")] = 8,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Begin no question once this many tokens are spent; a larger number goes on.",
            show_default=False,
        ),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(metavar="input=A,output=B", help="Of a million tokens, for a column of prices.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the run; one in convcoa-runs/.", show_default=False)
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew where the folder holds a run.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask again what failed, or was not judged, in an earlier start of the run.")
    ] = False,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Ask questions over a whole corpus, and measure the answers: of methods over the same model, or extracted without one.

    With --model, every method answers the same conversations with the same model, retriever and k, its own earlier answers in
    the history. Report, answers and model replies are kept in a folder; the same command goes on where it was stopped, and
    pays for no reply twice. A question that fails is counted, and the run goes on.

    A row of queries.jsonl has an id and a question, and where known an answer (or answers, a list of those that count as
    right), a conversation_id, a history (pairs of question and answer), gold (passage ids) and a split; a row of corpus.jsonl
    an id and a text. Without corpus.jsonl give --docs or --index, or methods that do not search.

    Methods: closed-book, few-shot, chain-of-thought, self-consistency, least-to-most, tree-of-thoughts, self-ask, react, dsp,
    search-in-the-chain, chain-of-action, history-aware-rag, ours, and ours-without-X for X of alignment, verification, cks,
    filling, draft.

    [bold]Examples[/bold]

      convcoa evaluate qa data/squad2 --sample 1000 --seed 0

      convcoa evaluate qa data/mtrag --model openai:gpt-4.1-mini --methods closed-book,react,ours --sample 100

      convcoa evaluate qa topiocqa/ --model gpt-4.1-mini --index wiki-index --judge gpt-4.1 --max-tokens 2000000

      convcoa evaluate qa data/mtrag --model qwen3 --base-url http://localhost:8000/v1 --methods ours --sweep k=1,3,5
    """
    given = {
        "--methods": methods,
        "--baseline": baseline,
        "--docs": docs,
        "--index": index,
        "--gold-history": gold_history,
        "--sweep": sweep,
        "--judge": judge,
        "--judge-base-url": judge_base_url,
        "--max-tokens": max_tokens,
        "--prices": prices,
        "--out": out,
        "--fresh": fresh,
        "--retry-failed": retry_failed,
    }
    part = None if split == "all" else split
    if model is None and models is None:
        for name, value in given.items():
            if value:
                raise InputError(f"{name} needs --model: without a model there is one way to answer, which extracts sentences")
        _extracted(data, sample, seed, part, k, max_words, as_json, no_cache)
        return
    if model is not None and models is not None:
        raise InputError("give --model or --models, not both: --models takes several names with commas between")
    chosen = _names(methods if methods is not None else _METHODS)
    from langgraph_convcoa.evaluation.methods.registry import check_methods

    check_methods(chosen)
    from langgraph_convcoa.evaluation.qa import RunPlan, evaluate_methods
    from langgraph_convcoa.evaluation.runs.run import RunSettings

    plan = RunPlan(
        data=data,
        models=_names(models) if models is not None else [str(model)],
        methods=chosen,
        base_url=base_url,
        judge=judge,
        judge_base_url=judge_base_url,
        split=part,
        sample=sample,
        seed=seed,
        retriever=_documents(docs, index, max_mb, no_cache),
        sweeps=sweep or (),
        baseline=baseline,
        prices=_prices(prices),
        run=RunSettings(concurrency, gold_history, max_tokens),
        out=out,
        fresh=fresh,
        retry_failed=retry_failed,
        **({} if k is None else {"k": k}),
    )
    cache = None if no_cache else open_cache()
    report = evaluate_methods(plan, cache=cache, progress=True, notify=lambda text: typer.echo(text, err=True))
    print_report(report, as_json)
    if report.partial:
        warn(f"the report is partial: {report.answered} of {report.planned} answers are there")
    typer.echo(f"report: {report.folder}/report.html", err=True)


def _extracted(
    data: Path, sample: int, seed: int, split: str | None, k: int | None, max_words: int, as_json: bool, no_cache: bool
) -> None:
    from langgraph_convcoa.evaluation.extractive_qa import evaluate_qa

    cache = None if no_cache else open_cache()
    report = evaluate_qa(data, split=split, sample=sample, seed=seed, max_words=max_words, k=k, cache=cache, progress=True)
    print_report(report, as_json)


def _documents(
    docs: str | None, index: Path | None, max_mb: float, no_cache: bool
) -> tuple[str, Callable[[int], BaseRetriever]] | None:
    if docs is None and index is None:
        return None
    path = documents_of(docs, index)

    def opened(k: int) -> BaseRetriever:
        return open_retriever(path, k=k, max_mb=max_mb, cache=not no_cache, progress=True)

    return path, opened


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _prices(text: str | None) -> Prices | None:
    if text is None:
        return None
    from langgraph_convcoa.evaluation.reports.figures import Prices

    try:
        parts = {name.strip(): float(value) for name, _, value in (part.partition("=") for part in text.split(","))}
        prices = Prices(**parts)
    except (ValueError, TypeError):
        prices = None
    if prices is None or not (0 <= prices.input < float("inf") and 0 <= prices.output < float("inf")):
        raise InputError(f"--prices {text}: write the prices of a million tokens as input=0.4,output=1.6")
    return prices
