"""`convcoa evaluate qa`: measures the answers of methods over the same questions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langgraph_convcoa.cli.console import print_report, warn
from langgraph_convcoa.cli.documents import documents_of, open_cache, open_retriever, place_of
from langgraph_convcoa.cli.options import (
    AsJson,
    BaseUrl,
    Docs,
    IndexPlace,
    PassageCount,
    grouped,
    names_of,
    panel,
    removed_option,
)
from langgraph_convcoa.evaluation.methods.registry import EXTRACTIVE, METHODS, check_methods
from langgraph_convcoa.text.terminal import printable

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.qa import RunPlan

_METHODS = "closed-book,history-aware-rag,ours"
_MAX_MB = 1_000.0
_questions, _asked, _run = map(panel, ("What is asked", "Who answers and judges", "The run"))
METHODS_HELP = "\n\n".join(["[bold]Methods[/bold]", *(f"{name}: {one.description}" for name, one in METHODS.items())])
"""The end of the command's help."""


@dataclass(frozen=True)
class QACommand:
    """The options of the command."""

    docs: Docs = None
    index: IndexPlace = None
    k: PassageCount = None
    sample: Annotated[int, _questions("N", "How many, in whole conversations; 1000 by default.", min=1)] = 1000
    seed: Annotated[int, _questions("S", "Which questions; 0 by default.")] = 0
    split: Annotated[str, _questions("NAME", "Their split, or all; dev by default, a fifth if there is no such split.")] = (
        "dev"
    )
    methods: Annotated[
        str | None,
        _asked("A,B", f"See below; the others are tested against the first. {_METHODS} with a model, else {EXTRACTIVE}."),
    ] = None
    model: Annotated[str | None, _asked("NAME", "Chat model of the methods.", "--model")] = None
    base_url: BaseUrl = None
    gold_history: Annotated[
        bool, _asked(None, "Earlier turns have the data's answers, not the method's own.", "--gold-history")
    ] = False
    judge: Annotated[
        str | None,
        _asked("NAME", "Chat model that marks each answer, and compares it with the first method's, in random order."),
    ] = None
    judge_base_url: Annotated[str | None, _asked("URL", "The judge's server; the model's by default.")] = None
    out: Annotated[Path | None, _run("DIR", "Folder of the run; one in convcoa-runs/ by default.")] = None
    max_tokens: Annotated[
        int | None, _run("N", "Start no question after so many tokens; a larger number resumes the run.", min=1)
    ] = None
    timeout: Annotated[float | None, _run("S", "Seconds to wait for a reply of a model; 60 by default.", min=1)] = None
    concurrency: Annotated[int, _run("N", "Conversations at the same time; 8 by default.", min=1)] = 8
    fresh: Annotated[bool, _run(None, "Start again if the folder holds a run.", "--fresh")] = False
    retry_failed: Annotated[bool, _run(None, "Ask the questions that failed again.", "--retry-failed")] = False
    models: Annotated[str | None, removed_option("run the command once for each --model", "--models")] = None
    sweep: Annotated[str | None, removed_option("run the command once for each value, such as -k 3", "--sweep")] = None
    prices: Annotated[str | None, removed_option("multiply the tokens of the report by your prices", "--prices")] = None
    judge_by: Annotated[
        str | None, removed_option("leave it out: --judge asks for marks and for the better answer", "--judge-by")
    ] = None
    unknown_names: Annotated[
        bool, removed_option("run python -m experiments.unknown_names DATA in a checkout of the repository", "--unknown-names")
    ] = False

    def plan(self, data: Path) -> RunPlan:
        """What is measured on a data set."""
        from langgraph_convcoa.evaluation.qa import RunPlan
        from langgraph_convcoa.evaluation.runs.run import RunSettings

        named = self.methods if self.methods is not None else _METHODS if self.model else EXTRACTIVE
        methods = names_of(named)
        check_methods(methods, model=self.model is not None)
        path = documents_of(self.docs, self.index)
        return RunPlan(
            data=data,
            methods=methods,
            model=self.model,
            base_url=self.base_url,
            judge=self.judge,
            judge_base_url=self.judge_base_url,
            split=None if self.split == "all" else self.split,
            sample=self.sample,
            seed=self.seed,
            retriever=(place_of(path), lambda: open_retriever(path, max_mb=_MAX_MB, progress=True)) if path else None,
            k=self.k,
            timeout=self.timeout,
            run=RunSettings(self.concurrency, self.gold_history, self.max_tokens),
            out=self.out,
            fresh=self.fresh,
            retry_failed=self.retry_failed,
        )


@grouped(QACommand)
def qa(
    chosen: QACommand,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="Folder of queries.jsonl(.gz) and corpus.jsonl(.gz), or a data set in a published format."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Ask questions over a whole corpus, and measure the answers of methods: quality, calls, tokens, seconds.

    Every method answers the same conversations with the same model, retriever and k, with its own earlier answers in the
    history. Report, answers and model replies are kept in a folder; the same command resumes a run that was stopped, and pays
    for no reply twice. A question that fails is counted, and the run continues.

    A row of queries.jsonl has an id and a question, and if known an answer (or answers, a list of those that count as right),
    a conversation_id, a history (pairs of question and answer), gold (passage ids) and a split; a row of corpus.jsonl an id
    and a text. Without corpus.jsonl give --docs or --index, or methods that do not search.

    [bold]Examples[/bold]
      convcoa evaluate qa data/squad2 --sample 1000 --seed 0
      convcoa evaluate qa data/mtrag --model openai:gpt-4.1-mini --methods closed-book,react,ours --sample 100
      convcoa evaluate qa data/mtrag --model qwen3 --base-url http://localhost:8000/v1 --methods ours,react
      convcoa evaluate qa data/mtrag --model gpt-4.1-mini --methods ours,history-aware-rag --judge gpt-4.1
      convcoa evaluate qa topiocqa/ --model gpt-4.1-mini --index wiki-index --max-tokens 2000000
    """
    plan = chosen.plan(data)
    from langgraph_convcoa.evaluation.qa import evaluate_methods

    report = evaluate_methods(plan, cache=open_cache(), notify=lambda text: typer.echo(printable(text), err=True))
    print_report(report, as_json)
    if report.partial:
        warn(f"the report is partial: {report.answered} of {report.planned} answers are there")
    typer.echo(f"report: {report.folder}/report.md", err=True)
