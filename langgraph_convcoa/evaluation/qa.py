"""Question answering with a model: methods measured on a data set, from its questions to the report."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.retrievers import BaseRetriever

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import METHODS, MethodEntry, check_methods, make_method
from langgraph_convcoa.evaluation.metrics.answers import answer_metrics
from langgraph_convcoa.evaluation.metrics.judge import JUDGED, Judge
from langgraph_convcoa.evaluation.reports.figures import Prices
from langgraph_convcoa.evaluation.reports.run import RunReport, report_of, write_report
from langgraph_convcoa.evaluation.runs.conversations import Drawn, draw
from langgraph_convcoa.evaluation.runs.folder import MAY_CHANGE, RunFolder
from langgraph_convcoa.evaluation.runs.judging import check_judge_by, judge_run
from langgraph_convcoa.evaluation.runs.reply_cache import keep_replies
from langgraph_convcoa.evaluation.runs.run import Measures, RunSettings, run_methods
from langgraph_convcoa.evaluation.runs.sweeps import Variant, parse_sweeps, variants
from langgraph_convcoa.nodes.act import MODEL_K
from langgraph_convcoa.reasoning.models import load_chat_model, shown_url
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

RUNS = "convcoa-runs"
"""The folder, in the present one, that holds the runs for which no other is named."""
EXAMPLES = 4
"""Answered questions in a few-shot prompt."""

ModelLike = str | BaseChatModel


@dataclass(frozen=True)
class RunPlan:
    """What is measured."""

    data: str | Path  # the data set, see `load_dataset`
    models: Sequence[ModelLike]  # chat models or their names; every method is run over each
    # Names of the methods that `evaluate_methods` knows; the others are tested against the first.
    methods: Sequence[str] = ("closed-book", "history-aware-rag", "ours")
    base_url: str | None = None  # an OpenAI-compatible server that has the models
    judge: ModelLike | None = None  # a chat model that judges answers, or its name; none when None
    judge_base_url: str | None = None  # its server; that of the models when None
    # What the judge is asked for: "em" (GPT-EM), "marks" of each answer, "pairs" (the first row's answer and another's).
    judge_by: Sequence[str] = ("em",)
    split: str | None = "dev"  # only questions of this split, see `load_part`; all when None
    sample: int | None = 1000  # about how many questions: whole conversations are drawn until there are so many; all when None
    seed: int = 0  # of the draw, of the examples, and of intervals and tests
    # What is searched in place of the data's own passages, with a name for the settings.
    retriever: tuple[str, Callable[[int], BaseRetriever]] | None = None
    k: int = MODEL_K
    sweeps: Sequence[str] = ()  # such as "threshold=0.3,0.5" and "k=1,3,5", of ours
    prices: Prices | None = None
    timeout: float | None = None  # seconds to wait for a reply of a model that is given by name; `load_chat_model`'s when None
    run: RunSettings = field(default_factory=RunSettings)
    # The run's folder; one in `RUNS` when None, named after the data, the model and a digest of the settings that all rows
    # share. Other methods, sweeps and a judge may join a run.
    out: str | Path | None = None
    fresh: bool = False  # start again where the folder holds a run
    # Ask the questions again that failed in earlier starts, or have no verdict of the judge, and what came after them; what
    # was replied before is not asked for again.
    retry_failed: bool = False

    def __post_init__(self) -> None:
        for name, value in (("sample", self.sample), ("k", self.k)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        check_judge_by(self.judge_by)


def evaluate_methods(
    plan: RunPlan,
    *,
    methods: Mapping[str, MethodEntry] = METHODS,
    encoder: Encoder | str | None = None,
    cache: PatternCache | None = None,
    progress: Progress = True,
    notify: Callable[[str], None] | None = None,
) -> RunReport:
    """Run methods over the same questions, model and retriever, and report; a run that was stopped is resumed.

    The report is in the run's folder too, as Markdown, HTML and JSON. After Ctrl-C (KeyboardInterrupt) the same call resumes
    the run. `methods` are those that the plan can name.
    """
    tell = notify or (lambda _message: None)
    check_methods(plan.methods, methods)
    # A missing package is reported before anything is paid for.
    answer_metrics("a", ["a"])
    names = [model_name(model) for model in plan.models]
    rows = variants(list(plan.methods), names, parse_sweeps(plan.sweeps))
    waiting: dict[str, Any] = {} if plan.timeout is None else {"timeout": plan.timeout}
    models = [load_chat_model(model, base_url=plan.base_url, **waiting) for model in plan.models]
    judge_url = plan.judge_base_url or plan.base_url
    judge = None if plan.judge is None else load_chat_model(plan.judge, base_url=judge_url, **waiting)
    has_em = judge is not None and "em" in plan.judge_by
    dataset, part = load_part(plan.data, plan.split, passages="optional")
    drawn = draw(dataset.queries, plan.sample, plan.seed)
    settings = _settings(plan, rows, dataset, part, drawn)
    with RunFolder(plan.out or _default_folder(dataset.name, names, settings), settings, fresh=plan.fresh) as folder:
        new_judge = has_em and not folder.judged
        if (plan.retry_failed or new_judge) and (dropped := folder.drop_failed(JUDGED if has_em else None)):
            tell(f"asking again {dropped} questions that failed, have no verdict, or came after such a one")
        searches = any(methods[name].searches for name in plan.methods)
        retriever = _retriever(plan, dataset, encoder, cache, progress) if searches else None
        kept = [keep_replies(model, folder.replies) for model in models]
        judging = None if judge is None else Judge(keep_replies(judge, folder.replies))
        examples = _examples(dataset, drawn, plan.seed)
        kits = {}
        for row in rows:
            k = plan.k if row.k is None else row.k
            context = ConvCoAContext(k=k, threshold=row.threshold)
            kits[row.label] = Kit(kept[row.model], retriever, k=k, settings=context, examples=examples)
        try:
            end = run_methods(
                {row.label: make_method(row.method, kits[row.label], methods) for row in rows},
                drawn,
                folder,
                measure=Measures(judging if has_em else None),
                models={label: kit.model for label, kit in kits.items()},
                remembering={row.label for row in rows if methods[row.method].remembers},
                settings=plan.run,
                progress=progress,
                notify=tell,
            )
            verdicts = None
            if judging is not None and (wanted := [name for name in plan.judge_by if name != "em"]):
                verdicts = judge_run(
                    folder,
                    drawn,
                    [row.label for row in rows],
                    judging,
                    {str(passage.id): passage.page_content for passage in dataset.corpus},
                    wanted=wanted,
                    seed=plan.seed,
                    concurrency=plan.run.concurrency,
                    max_tokens=plan.run.max_tokens,
                    progress=progress,
                )
        except (KeyboardInterrupt, ModelError):
            tell(f"the answers so far are kept in {folder.path}; the same command resumes the run")
            raise
        if end.stopped:
            tell(f"stopped: {end.stopped}; {end.answered} of {end.planned} answers are in {folder.path}")
        report = report_of(folder, drawn, rows, judged=has_em, verdicts=verdicts, prices=plan.prices, seed=plan.seed)
        write_report(report, folder.path)
    return report


def model_name(model: ModelLike) -> str:
    """A model's name, as it was given or as it gives it itself."""
    if isinstance(model, str):
        return model.strip()
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)


def _settings(plan: RunPlan, rows: Sequence[Variant], dataset: Dataset, part: str, drawn: Drawn) -> dict[str, Any]:
    """What decides the answers; a key is not among it, nor a password in an address."""
    judge_url = plan.judge_base_url or plan.base_url
    return {
        "data": dataset.name,
        "part": part or "all",
        "sample": plan.sample,
        "seed": plan.seed,
        "questions": drawn.questions,
        "questions_digest": drawn.digest(),
        "models": [model_name(model) for model in plan.models],
        "base_url": None if plan.base_url is None else shown_url(plan.base_url),
        "methods": list(plan.methods),
        "sweeps": list(plan.sweeps),
        "rows": [row.label for row in rows],
        "searched": plan.retriever[0] if plan.retriever is not None else _passages(dataset),
        "k": plan.k,
        "history": "gold" if plan.run.gold_history else "own answers",
        "judge": None if plan.judge is None else model_name(plan.judge),
        "judge_by": None if plan.judge is None else list(check_judge_by(plan.judge_by)),
        "judge_base_url": None if plan.judge is None or judge_url is None else shown_url(judge_url),
        "version": version("langgraph-convcoa"),
    }


def _passages(dataset: Dataset) -> str:
    digest = hashlib.sha256()
    for passage in dataset.corpus:
        digest.update(f"{passage.id}\0{passage.page_content}\0".encode("utf-8", "surrogatepass"))
    return f"{len(dataset.corpus)} passages of the data, {digest.hexdigest()[:16]}"


def _default_folder(data: str, models: Sequence[str], settings: dict[str, Any]) -> Path:
    fixed = {name: value for name, value in settings.items() if name not in MAY_CHANGE}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:8]
    return Path(RUNS) / re.sub(r"[^A-Za-z0-9._-]+", "-", f"{data}-{'-'.join(models)}-{digest}")[-120:]


def _retriever(
    plan: RunPlan, dataset: Dataset, encoder: Encoder | str | None, cache: PatternCache | None, progress: Progress
) -> BaseRetriever | None:
    """What is searched; None without passages."""
    if plan.retriever is not None:
        return plan.retriever[1](plan.k)
    if not dataset.corpus:
        return None
    return HopfieldRetriever.from_documents(dataset.corpus, k=plan.k, encoder=encoder, cache=cache, progress=progress)


def _examples(dataset: Dataset, drawn: Drawn, seed: int) -> list[tuple[str, str]]:
    """Answered first questions of conversations that are not asked."""
    asked = {conversation.id for conversation in drawn.conversations}
    free = [query for query in dataset.queries if query.conversation_id not in asked and not query.history]
    known = [(query.question, query.answer) for query in free if query.answer.strip()]
    return random.Random(seed).sample(known, min(EXAMPLES, len(known)))  # noqa: S311 - a draw, not a secret
