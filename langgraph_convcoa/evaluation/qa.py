"""Question answering: methods measured on a data set, from its questions to the report."""

from __future__ import annotations

import hashlib
import json
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
from langgraph_convcoa.errors import InputError, ModelError, check_least
from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import METHODS, Method, check_methods, make_method
from langgraph_convcoa.evaluation.records import Questions, sample_conversations
from langgraph_convcoa.evaluation.reports import RunReport, report_of, write_report
from langgraph_convcoa.evaluation.runs.folder import MAY_CHANGE, RunFolder, keep_replies
from langgraph_convcoa.evaluation.runs.judging import Judge, judge_run
from langgraph_convcoa.evaluation.runs.run import RunSettings, run_methods
from langgraph_convcoa.reasoning.models import load_chat_model, shown_url
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

RUNS = "convcoa-runs"  # Folder in the current directory for runs that name no folder.
ModelLike = str | BaseChatModel


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run: its questions, methods, models and folder."""

    data: str | Path  # the data set, see `load_dataset`
    methods: Sequence[str] = ("closed-book", "history-aware-rag", "ours")  # all others are tested against the first
    model: ModelLike | None = None  # a chat model or its name; None for methods that need none
    base_url: str | None = None  # an OpenAI-compatible server of the model
    judge: ModelLike | None = None  # a chat model that marks and compares the answers, or its name
    judge_base_url: str | None = None  # the judge's server; the model's when None
    split: str | None = "dev"  # only questions of this split, see `load_part`; all when None
    sample: int | None = 1000  # whole conversations are drawn until they hold this many questions; all when None
    seed: int = 0  # seed of the sample, the intervals and the tests
    # Replaces the retriever over the data's passages: a name for the saved settings, and a function that opens a retriever.
    retriever: tuple[str, Callable[[], BaseRetriever]] | None = None
    k: int | None = None  # passages for each search; when None, 5 with a model and 10 without
    timeout: float | None = None  # seconds to wait for a reply of a model that is given by name
    run: RunSettings = field(default_factory=RunSettings)
    out: str | Path | None = None  # the run's folder; when None, a folder in `RUNS` named after data, model and settings
    fresh: bool = False  # start again if the folder holds a run
    retry_failed: bool = False  # ask the failed questions again, and the later questions of their conversations

    def __post_init__(self) -> None:
        check_least(self, sample=1, k=1)
        if not self.methods or len({*self.methods}) < len(self.methods):
            raise InputError("Name at least one method, and each method once.")


def evaluate_methods(
    plan: RunPlan,
    *,
    methods: Mapping[str, Method] = METHODS,
    encoder: Encoder | str | None = None,
    cache: PatternCache | None = None,
    progress: Progress = True,
    notify: Callable[[str], None] = lambda _message: None,
) -> RunReport:
    """Run methods over the same questions, model and retriever, and report; the same call resumes a run that was stopped.

    The report is in the run's folder too, as Markdown and JSON. `methods` are the methods that the plan can name. To add
    your own, give `{**METHODS, ...}`.
    """
    check_methods(plan.methods, methods, model=plan.model is not None)
    chosen = {name: methods[name] for name in plan.methods}
    searches = any(method.searches for method in chosen.values())
    model, judge = _model(plan, plan.model, plan.base_url), _model(plan, plan.judge, plan.judge_base_url or plan.base_url)
    dataset, part = load_part(plan.data, plan.split, passages="optional")
    questions = sample_conversations(dataset.queries, plan.sample, plan.seed)
    settings = _settings(plan, dataset, part, questions)
    with RunFolder(plan.out or _default_folder(settings), settings, fresh=plan.fresh) as folder:
        if plan.retry_failed and (dropped := folder.drop_failed()):
            notify(f"asking again {dropped} questions that failed, or came after such a one")
        retriever = plan.retriever[1]() if searches and plan.retriever is not None else None
        if searches and retriever is None and dataset.corpus:
            retriever = HopfieldRetriever.from_documents(dataset.corpus, encoder=encoder, cache=cache, progress=progress)
        kept = None if model is None else keep_replies(model, folder.replies)
        # With the method's own answers in the history, the next question would be read as the reply to a clarifying question.
        kit = Kit(kept, retriever, k=plan.k, settings=ConvCoAContext(k=plan.k, ask_back=plan.run.gold_history))
        made = {name: make_method(name, kit, methods) for name in chosen}
        remembering = {name for name, method in chosen.items() if method.remembers}
        running: dict[str, Any] = {"settings": plan.run, "progress": progress}
        verdicts = None
        try:
            stopped = run_methods(made, questions, folder, remembering=remembering, notify=notify, **running)
            if judge is not None:
                texts = {str(passage.id): passage.page_content for passage in dataset.corpus}
                judging = Judge(keep_replies(judge, folder.replies))
                verdicts = judge_run(folder, questions, [*chosen], judging, texts, seed=plan.seed, **running)
        except (KeyboardInterrupt, ModelError):
            notify(f"the answers so far are kept in {folder.path}; the same command resumes the run")
            raise
        if stopped:
            notify(f"stopped: {stopped}; the answers so far are kept in {folder.path}")
        report = report_of(folder, questions, [*chosen], verdicts, seed=plan.seed)
        write_report(report, folder.path)
    return report


def _model(plan: RunPlan, model: ModelLike | None, base_url: str | None) -> BaseChatModel | None:
    waiting: dict[str, Any] = {} if plan.timeout is None else {"timeout": plan.timeout}
    return None if model is None else load_chat_model(model, base_url=base_url, **waiting)


def _name(model: ModelLike | None) -> str | None:
    if model is None or isinstance(model, str):
        return model and model.strip()
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)


def _settings(plan: RunPlan, dataset: Dataset, part: str, questions: Questions) -> dict[str, Any]:
    """The settings of the run for its folder, without keys and passwords."""
    judge_url = None if plan.judge is None else plan.judge_base_url or plan.base_url
    digest = hashlib.sha256()
    for passage in dataset.corpus:
        digest.update(f"{passage.id}\0{passage.page_content}\0".encode("utf-8", "surrogatepass"))
    passages = f"{len(dataset.corpus)} passages of the data, {digest.hexdigest()[:16]}"
    return {
        "data": dataset.name,
        "part": part or "all",
        "sample": plan.sample,
        "seed": plan.seed,
        "questions": len(questions),
        "questions_digest": questions.digest(),
        "model": _name(plan.model),
        "base_url": None if plan.base_url is None else shown_url(plan.base_url),
        "methods": list(plan.methods),
        "searched": plan.retriever[0] if plan.retriever is not None else passages,
        "k": plan.k,
        "history": "gold" if plan.run.gold_history else "own answers",
        "judge": _name(plan.judge),
        "judge_base_url": None if judge_url is None else shown_url(judge_url),
        "version": version("langgraph-convcoa"),
    }


def _default_folder(settings: dict[str, Any]) -> Path:
    fixed = {name: value for name, value in settings.items() if name not in MAY_CHANGE}
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:8]
    name = f"{settings['data']}-{settings['model'] or 'extractive'}-{digest}"
    return Path(RUNS) / re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-120:]
