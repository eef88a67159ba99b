"""`convcoa evaluate qa`: measures the answers of methods over a model or, without one, extracted answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langgraph_convcoa.cli.console import print_report, warn
from langgraph_convcoa.cli.documents import documents_of, open_cache, open_retriever, place_of
from langgraph_convcoa.cli.options import AsJson, BaseUrl, Docs, IndexPlace, PassageCount, names_of, option, panel
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.registry import METHODS, check_methods
from langgraph_convcoa.text.terminal import printable

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.reports.figures import Prices

_METHODS = "closed-book,history-aware-rag,ours"
_MAX_MB = 1_000.0
_questions, _asked, _run = map(panel, ("What is asked", "Who answers (with --model)", "The run (with --model)"))
METHODS_HELP = "\n\n".join(["[bold]Methods[/bold]", *(f"{name}: {one.description}" for name, one in METHODS.items())])
"""The end of the command's help."""

_Sample = _questions("N", "How many; whole conversations where a model is asked.", show_default=True, min=1)
_Split = _questions("NAME", "Their split, or all; dev is a fifth where there is no such split.", show_default=True)
_Unknown = _questions(
    None, "Put a name that is in no document into each, and count the plain refusals (without --model).", "--unknown-names"
)
_Methods = _asked("A,B", f"See below; the others are tested against the first. {_METHODS} by default.")
_Sweep = _asked("threshold=A,B|k=A,B", "Ours again for each of these values; may be repeated.")
_Gold = _asked(None, "Earlier turns have the data's answers, not the method's own.", "--gold-history")
_Budget = _run("N", "Begin no question once so many tokens are spent; a larger number resumes the run.", min=1)
_Timeout = _run("S", "Seconds to wait for a reply of a model, 60 by default; slow servers need more.", min=1)
_JudgeBy = _asked(
    "em,marks,pairs",
    "What it says: right or not (GPT-EM); marks for correct, complete, faithful, concise; whether the first method's "
    "answer or another's is better.",
    show_default=True,
)
_Retry = _run(None, "Ask again what failed, or was not judged, in an earlier start of the run.", "--retry-failed")


def qa(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="Folder of queries.jsonl(.gz) and corpus.jsonl(.gz), or a data set in a published format."
        ),
    ],
    model: Annotated[
        str | None,
        option(
            "A,B",
            "Chat model of the methods, or several, each with every method; answers are extracted without one.",
            "--model",
            "--models",
        ),
    ] = None,
    base_url: BaseUrl = None,
    docs: Docs = None,
    index: IndexPlace = None,
    k: PassageCount = None,
    as_json: AsJson = False,
    sample: Annotated[int, _Sample] = 1000,
    seed: Annotated[int, _questions("S", "Which questions.", show_default=True)] = 0,
    split: Annotated[str, _Split] = "dev",
    unknown_names: Annotated[bool, _Unknown] = False,
    methods: Annotated[str | None, _Methods] = None,
    sweep: Annotated[list[str] | None, _Sweep] = None,
    gold_history: Annotated[bool, _Gold] = False,
    judge: Annotated[str | None, _asked("NAME", "Chat model that judges the answers.")] = None,
    judge_by: Annotated[str, _JudgeBy] = "em",
    judge_base_url: Annotated[str | None, _asked("URL", "The judge's server; that of the model.")] = None,
    out: Annotated[Path | None, _run("DIR", "Folder of the run; one in convcoa-runs/.")] = None,
    max_tokens: Annotated[int | None, _Budget] = None,
    timeout: Annotated[float | None, _Timeout] = None,
    concurrency: Annotated[int, _run("N", "Conversations at the same time.", show_default=True, min=1)] = 8,
    prices: Annotated[str | None, _run("input=A,output=B", "Of a million tokens, for a column of prices.")] = None,
    fresh: Annotated[bool, _run(None, "Start again where the folder holds a run.", "--fresh")] = False,
    retry_failed: Annotated[bool, _Retry] = False,
) -> None:
    """Ask questions over a whole corpus, and measure the answers: of methods over the same model, or extracted without one.

    With --model, every method answers the same conversations with the same model, retriever and k, its own earlier answers in
    the history. Report, answers and model replies are kept in a folder; the same command resumes a run that was stopped, and
    pays for no reply twice. A question that fails is counted, and the run continues.

    A row of queries.jsonl has an id and a question, and where known an answer (or answers, a list of those that count as
    right), a conversation_id, a history (pairs of question and answer), gold (passage ids) and a split; a row of corpus.jsonl
    an id and a text. Without corpus.jsonl give --docs or --index, or methods that do not search.

    [bold]Examples[/bold]
      convcoa evaluate qa data/squad2 --sample 1000 --seed 0
      convcoa evaluate qa data/squad2 --sample 200 --unknown-names
      convcoa evaluate qa data/mtrag --model openai:gpt-4.1-mini --methods closed-book,react,ours --sample 100
      convcoa evaluate qa data/mtrag --model qwen3 --methods history-aware-rag,ours --judge gpt-4.1 --judge-by marks,pairs
      convcoa evaluate qa topiocqa/ --model gpt-4.1-mini --index wiki-index --judge gpt-4.1 --max-tokens 2000000
      convcoa evaluate qa data/mtrag --model qwen3 --base-url http://localhost:8000/v1 --methods ours --sweep k=1,3,5
    """
    part = None if split == "all" else split
    if model is None:
        given = {
            "--methods": methods,
            "--sweep": sweep,
            "--docs": docs,
            "--index": index,
            "--gold-history": gold_history,
            "--judge": judge,
            "--judge-base-url": judge_base_url,
            "--judge-by": judge_by != "em",
            "--out": out,
            "--max-tokens": max_tokens,
            "--prices": prices,
            "--timeout": timeout,
            "--fresh": fresh,
            "--retry-failed": retry_failed,
        }
        if named := [name for name, value in given.items() if value]:
            raise InputError(f"{named[0]} needs --model: without a model there is one way to answer, which extracts sentences")
        from langgraph_convcoa.evaluation.extractive_qa import evaluate_qa
        from langgraph_convcoa.evaluation.unknown_names import evaluate_unknown_names

        evaluate = evaluate_unknown_names if unknown_names else evaluate_qa
        print_report(evaluate(data, split=part, sample=sample, seed=seed, k=k, cache=open_cache()), as_json)
        return
    if unknown_names:
        raise InputError("--unknown-names is measured without --model: leave one of the two out")
    chosen = names_of(methods if methods is not None else _METHODS)
    check_methods(chosen)
    if judge_by != "em" and judge is None:
        raise InputError("--judge-by needs --judge: name the chat model that judges")
    from langgraph_convcoa.evaluation.qa import RunPlan, evaluate_methods
    from langgraph_convcoa.evaluation.runs.judging import check_judge_by
    from langgraph_convcoa.evaluation.runs.run import RunSettings

    path = documents_of(docs, index)
    plan = RunPlan(
        data=data,
        models=names_of(model),
        methods=chosen,
        base_url=base_url,
        judge=judge,
        judge_base_url=judge_base_url,
        judge_by=check_judge_by(names_of(judge_by)),
        split=part,
        sample=sample,
        seed=seed,
        retriever=(place_of(path), lambda k: open_retriever(path, k=k, max_mb=_MAX_MB, progress=True)) if path else None,
        sweeps=sweep or (),
        prices=_prices(prices),
        timeout=timeout,
        run=RunSettings(concurrency, gold_history, max_tokens),
        out=out,
        fresh=fresh,
        retry_failed=retry_failed,
        **({} if k is None else {"k": k}),
    )
    report = evaluate_methods(plan, cache=open_cache(), notify=lambda text: typer.echo(printable(text), err=True))
    print_report(report, as_json)
    if report.partial:
        warn(f"the report is partial: {report.answered} of {report.planned} answers are there")
    typer.echo(f"report: {report.folder}/report.html", err=True)


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
