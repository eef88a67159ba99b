"""`convcoa train`, `train-verifier` and `train-planner`: models for the retriever, the verifier and the planner."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_convcoa.cli.console import consoles, print_json
from langgraph_convcoa.cli.options import (
    AsJson,
    BaseUrl,
    Docs,
    IndexPlace,
    NoCache,
    argument,
    grouped,
    names_of,
    option,
    panel,
)
from langgraph_convcoa.errors import InputError, first_line, redact, require

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langgraph_convcoa.datasets.queries import Dataset
    from langgraph_convcoa.training.head import HeadSettings
    from langgraph_convcoa.training.planner.environment import RewardSettings
    from langgraph_convcoa.training.query_encoder import QueryEncoderSettings
    from langgraph_convcoa.training.reranker import RerankerSettings

_kind, _length, _run = map(panel, ("What is trained", "Length", "The run"))
_turn, _reward, _updates = map(panel, ("The turns", "The reward", "Length and memory"))
_NOT_IN_CARD = ("data", "out", "resume", "device", "logs", "as_json", "no_cache")


@dataclass(frozen=True)
class TrainingOptions:
    """The options of `convcoa train`: the kind of model, and the length of the training."""

    head: Annotated[bool, _kind(None, "Only the head: weights on frozen vectors, in a minute or so.", "--head")] = False
    reranker: Annotated[bool, _kind(None, "A reranker: it reads a question and a passage together.", "--reranker")] = False
    start: Annotated[Path | None, _kind("DIR", "Train this query encoder (with --reranker a file) further.")] = None
    distil_only: Annotated[bool, _kind(None, "Learn from rewrites alone, without the DPR loss.", "--distil-only")] = False
    synthetic: Annotated[int | None, _kind("N", "Synthetic conversations; 6000, or 4000 with --head.", min=0)] = None
    encoder: Annotated[str | None, _kind("NAME", "sentence-transformers model or folder; all-MiniLM-L6-v2 without it.")] = None
    encoder_dtype: Annotated[str, _kind("TYPE", "What the frozen encoder computes in: int8 or float32.")] = "int8"
    steps: Annotated[int | None, _length("N", "Batches; by default to see all data, or 1000 of a reranker.", min=1)] = None
    batch_size: Annotated[int | None, _length("N", "Questions per step.", min=2)] = None
    learning_rate: Annotated[float | None, _length("X", "Peak learning rate.")] = None
    seed: Annotated[int, _length("S", "Seed of all random draws; 0 by default.", min=0)] = 0

    def settings(self) -> HeadSettings | QueryEncoderSettings | RerankerSettings:
        """The settings of the training. Raises InputError if options contradict each other."""
        if self.head and (self.distil_only or self.start is not None):
            raise InputError("--distil-only and --start are for the query encoder: leave out --head")
        if self.reranker and (self.head or self.distil_only):
            raise InputError("--reranker trains a reranker alone: leave out --head and --distil-only")
        from langgraph_convcoa.training.head import HeadSettings
        from langgraph_convcoa.training.query_encoder import QueryEncoderSettings
        from langgraph_convcoa.training.reranker import RerankerSettings

        names = ("steps", "batch_size", "learning_rate", "seed")
        given: dict[str, Any] = {name: number for name in names if (number := getattr(self, name)) is not None}
        kind = HeadSettings if self.head else RerankerSettings if self.reranker else QueryEncoderSettings
        found: HeadSettings | QueryEncoderSettings | RerankerSettings = kind()
        found = replace(found, training=replace(found.training, **given))
        if self.synthetic is not None:
            found = replace(found, synthetic=self.synthetic)
        if isinstance(found, QueryEncoderSettings) and (self.distil_only or self.start is not None):
            found = replace(found, distilled_first=1.0 if self.distil_only else 0.0)
        return found


@grouped(TrainingOptions)
def train(
    options: TrainingOptions,
    ctx: typer.Context,
    data: Annotated[list[Path], argument("DATA...", "Conversations, or questions over titled articles to make them of.")],
    out: Annotated[Path, option("DIR", "Folder of the model.")],
    resume: Annotated[bool, _run(None, "Resume a training into DIR that was stopped.", "--resume")] = False,
    device: Annotated[str | None, _run("NAME", "cpu, cuda, ...; chosen by itself if not given.")] = None,
    logs: Annotated[Path | None, _run("DIR", "Folder for TensorBoard.")] = None,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Train a model for the retriever on conversations; a split "dev" of the data is left out.

    Without --head, a query encoder is trained: a copy of the encoder, which reads the earlier turns too. Indexed passages
    do not change. Ctrl-C stops after the current step; run it again with --resume to finish. It needs the extra `train`.

    [bold]Examples[/bold]
      convcoa train data/my_conversations --out my.model
      convcoa train data/squad2 data/quac data/mine --out my.model --resume
      convcoa train data/mine --out small.model --head
      convcoa train data/mine --out my.reranker --reranker --start reranker
      convcoa evaluate retrieval data/mine --model my.model
    """
    # Packages are checked before transformers' Trainer is imported, because that import fails without accelerate.
    require("training", "train", "accelerate", *(["tensorboard"] if logs is not None else []))
    settings = options.settings()
    from langgraph_convcoa.cli.documents import open_cache
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
    from langgraph_convcoa.retrieval.query.model import RetrieverModel
    from langgraph_convcoa.training.data import load_single_turn, load_training_data
    from langgraph_convcoa.training.head import train_head
    from langgraph_convcoa.training.query_encoder import train_query_encoder
    from langgraph_convcoa.training.reranker import train_reranker
    from langgraph_convcoa.training.trainer import TrainingJob, model_parts

    cache = None if no_cache else open_cache()
    job = TrainingJob(out, resume, device, logs, cache, progress=True, command=command_line(ctx))
    job.check()
    check_device(device)
    single = {path: found for path in data if (found := load_single_turn(path)) is not None}
    rest = [path for path in data if path not in single]
    conversations = load_training_data(rest) if rest else None
    if options.head and conversations is None:
        raise InputError("a head learns from conversations alone: name at least one folder of them")
    given: dict[str, Any] = {
        "single_turn": list(single.values()),
        "encoder": SentenceTransformerEncoder(options.encoder or DEFAULT_ENCODER, dtype=options.encoder_dtype),
        "settings": settings,
        "job": job,
    }
    if options.reranker:
        reranker = train_reranker(conversations, start=options.start or (None if options.encoder else "verifier"), **given)
        if as_json:
            print_json({"reranker": str(reranker.path), "weight": reranker.weight, "bytes": _size(out)})
        else:
            consoles()[0].out(f"{reranker.path}: a reranker, weight {reranker.weight}, {_size(out) / 1e6:.1f} MB")
        return
    if options.head and conversations is not None:
        model = train_head(conversations, **given)
    else:
        start = None if options.start is None else RetrieverModel.load(options.start)
        model = train_query_encoder(conversations, start=start, **given)
    parts = list(model_parts(model))
    if as_json:
        about = {"encoder": model.encoder, "parts": parts, "settings": dict(model.settings)}
        print_json({"model": str(out), **about, "bytes": _size(out)})
    else:
        consoles()[0].out(f"{out}: {', '.join(parts)}, {_size(out) / 1e6:.1f} MB, for {model.encoder}")


def check_device(name: str | None) -> None:
    """Raise InputError if there is no such device."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"--device {name} cannot be used here ({first_line(error)}); name another, such as cpu") from None


def command_line(ctx: typer.Context) -> str:
    """The command for the model's card: the data, the folder and the given options, without secrets."""
    words: list[object] = ["convcoa", ctx.info_name, *(ctx.params["data"] or ()), "--out", ctx.params["out"]]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        if name not in _NOT_IN_CARD and source is not None and source.name == "COMMANDLINE":
            value = ctx.params[name]
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], value]
    return redact(shlex.join(map(str, words)))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def train_verifier(
    ctx: typer.Context,
    out: Annotated[Path, option("DIR", "Folder of the training; the verifier is DIR/verifier.safetensors.")],
    data: Annotated[list[Path] | None, argument("[DATA...]", "Files of labelled claims.")] = None,
    only: Annotated[bool, option(None, "Leave out the claims of the package.", "--only")] = False,
    start: Annotated[str, option("FILE", "Verifier to go on from, or none for the encoder itself.")] = "default",
    steps: Annotated[int, option("N", "Batches of 32 pairs.", min=1)] = 1_000,
    learning_rate: Annotated[float, option("X", "Peak learning rate.")] = 1e-4,
    seed: Annotated[int, option("S", "Seed of everything that is drawn.", min=0)] = 0,
    resume: Annotated[bool, option(None, "Resume a training that was stopped.", "--resume")] = False,
    device: Annotated[str | None, option("NAME", "cpu, cuda, ...; chosen by itself if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a verifier on labelled claims: true and false sentences about a passage.

    It starts from the package's verifier, so a few hundred claims of your own documents help. On two cores, a step takes
    one to three seconds. A training that was stopped is resumed with --resume. It needs the extra `train`.

    [bold]Examples[/bold]
      convcoa train-verifier mine.jsonl --out my.verifier
      convcoa train-verifier mine.jsonl --out my.verifier --steps 3000 --resume
      convcoa evaluate verification test.jsonl --verifiers default,my.verifier/verifier.safetensors
    """
    require("training", "train", "accelerate")
    from langgraph_convcoa.datasets.labelled_claims import packaged_claims, read_claims
    from langgraph_convcoa.training.verifier import VerifierSettings, train_verifier
    from langgraph_convcoa.verification.trained import packaged_verifier

    check_device(device)
    files = data or []
    claims = [claim for path in files for claim in read_claims(path)]
    if not only:
        claims += packaged_claims("train")
    with packaged_verifier() as packaged:
        verifier = train_verifier(
            claims,
            out,
            start={"default": packaged, "none": None}.get(start, Path(start)),
            settings=VerifierSettings(steps, learning_rate=learning_rate, seed=seed),
            resume=resume,
            device=device,
            sources=[path.name for path in files] + ([] if only else ["the package's claims"]),
            command=command_line(ctx),
            progress=True,
        )
    if as_json:
        print_json({"verifier": str(verifier.path), "claims": len(claims), "steps": steps, "threshold": verifier.threshold})
    else:
        consoles()[0].out(f"{verifier.path}: a verifier trained on {len(claims)} claims, T {verifier.threshold}")


@dataclass(frozen=True)
class PlannerOptions:
    """The turns, their reward, and the length of the training."""

    k: Annotated[int | None, _turn("N", "Passages for each sub-question.", "-k", "--k", min=1, max=100)] = None
    evidence: Annotated[bool, _turn(None, "Look the question up first, as build_graph does.", "--evidence")] = False
    reasoner: Annotated[str, _turn("NAME", "Writes the second call: extractive, base or a chat model.")] = "extractive"
    weights: Annotated[str, _reward("A=X,B=Y", "Weights of final, kept, hallucinated, retrieval, malformed.")] = ""
    match: Annotated[str, _reward("em|cover_em|f1", "When a final answer is right.")] = "cover_em"
    own: Annotated[str | None, _reward("MODULE:NAME", "Your function (plan, output, references) -> number.")] = None
    steps: Annotated[int, _updates("N", "Updates of the weights.", min=1)] = 200
    questions: Annotated[int, _updates("N", "Questions per step.", min=1)] = 4
    group: Annotated[int, _updates("N", "Plans sampled for each question.", min=2)] = 4
    longest: Annotated[int, _updates("N", "Maximum number of tokens of a plan.", min=8)] = 256
    learning_rate: Annotated[float, _updates("X", "Peak learning rate.")] = 1e-5
    beta: Annotated[float, _updates("X", "Weight of the KL term.", min=0.0)] = 0.04
    temperature: Annotated[float, _updates("X", "Temperature of the sampled plans.")] = 1.0
    rank: Annotated[int, _updates("N", "Rank of LoRA.", min=1)] = 16
    layers: Annotated[int | None, _updates("N", "LoRA in the last N layers; in all by default.", min=1)] = None
    full: Annotated[bool, _updates(None, "Train all weights instead of LoRA.", "--full")] = False
    vllm: Annotated[bool, _updates(None, "Sample with vLLM.", "--vllm/--no-vllm")] = False
    checkpoint_every: Annotated[int, _run("N", "Steps between two checkpoints.", min=1)] = 10
    seed: Annotated[int, _run("S", "Seed of all random draws.", min=0)] = 0

    def reward(self) -> RewardSettings:
        from pydantic import ImportString, TypeAdapter, ValidationError

        from langgraph_convcoa.training.planner.environment import RewardSettings

        known = ("final", "kept", "hallucinated", "retrieval", "malformed")
        given: dict[str, Any] = {"match": self.match}
        for part in names_of(self.weights):
            name, _, number = part.partition("=")
            if name not in known:
                raise InputError(f"--weights knows {', '.join(known)}, not {name!r}")
            try:
                given[name] = float(number)
            except ValueError:
                raise InputError(f"--weights takes NAME=NUMBER, not {part!r}") from None
        if self.own is not None:
            try:
                given["own"] = TypeAdapter(ImportString[Any]).validate_python(self.own)
            except ValidationError as error:
                raise InputError(f"--own {self.own} cannot be imported: write MODULE:NAME") from error
        return RewardSettings(**given)


@grouped(PlannerOptions)
def train_planner(
    options: PlannerOptions,
    ctx: typer.Context,
    data: Annotated[list[Path], typer.Argument(metavar="DATA...", help="Folders or files of conversations with answers.")],
    model: Annotated[str, option("NAME", "Language model of Hugging Face, by name or folder; it is not changed.")],
    out: Annotated[Path, option("DIR", "Folder of the planner.")],
    docs: Docs = None,
    index: IndexPlace = None,
    base_url: BaseUrl = None,
    resume: Annotated[bool, _run(None, "Resume a training into DIR that was stopped.", "--resume")] = False,
    logs: Annotated[Path | None, _run("DIR", "Folder for TensorBoard.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train the planner of a graph with GRPO: the reward of a plan is the reward of the turn that it leads to.

    A plan that is not exactly the requested JSON earns less than any other plan. A small model writes no such JSON: first
    train it on plans of a stronger model (docs/guides/training.md). The split "dev" of the data is left out, or else a fifth
    of the data. Ctrl-C stops after the current step; run it again with --resume to finish. It needs the extra `grpo`.

    [bold]Examples[/bold]
      convcoa train-planner conversations/ --model Qwen/Qwen3-4B-Instruct-2507 --out my.planner --docs papers/
      convcoa train-planner conversations/ --model warm/ --out my.planner --index papers.index --learning-rate 1e-4
    """
    from langgraph_convcoa.cli.documents import searched
    from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
    from langgraph_convcoa.training.planner.environment import PAPER_FORM, Environment
    from langgraph_convcoa.training.planner.grpo import PlannerTraining, check_planner_folder, train_planner

    reward = options.reward()
    settings = PlannerTraining(**{field.name: getattr(options, field.name) for field in fields(PlannerTraining)})
    check_planner_folder(out, resume=resume)
    dataset = _turns(data, own=docs is None and index is None)
    context: dict[str, Any] = ({} if options.evidence else PAPER_FORM) | ({} if options.k is None else {"k": options.k})
    reasoner = None
    if options.reasoner != "extractive":
        name = f"huggingface:{model}" if options.reasoner == "base" else options.reasoner
        reasoner = ChatModelReasoner(name, base_url=base_url)
    environment = Environment(searched(dataset, docs, index), reasoner=reasoner, context=context, reward=reward)
    kept: dict[str, Any] = {"resume": resume, "logs": logs, "command": command_line(ctx), "progress": True}
    curve = train_planner(dataset.queries, environment, model, out, settings, **kept)
    if as_json:
        print_json({"planner": str(out), "bytes": _size(out), "curve": curve})
        return
    tenth = max(1, len(curve) // 10)
    before, after = (sum(row["reward"] for row in part) / tenth for part in (curve[:tenth], curve[-tenth:]))
    console, _ = consoles()
    console.out(f"reward of sampled plans: {before:.2f} in the first {tenth} steps, {after:.2f} in the last")
    console.out(f"{out}: {_size(out) / 1e6:.1f} MB")


def _turns(data: list[Path], *, own: bool) -> Dataset:
    """The training parts of all data as one data set. With `own`, the data must have passages."""
    from langgraph_convcoa.datasets.queries import Dataset, split_part
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.training.data import add_passages

    parts = [split_part(load_dataset(path, passages="required" if own else "optional"), "train").dataset for path in data]
    passages: dict[str, Document] = {}
    for part in parts:
        add_passages(passages, part.corpus, part.name)
    name = ", ".join(part.name for part in parts)
    return Dataset(name, tuple(query for part in parts for query in part.queries), tuple(passages.values()))
