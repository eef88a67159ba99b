"""`convcoa train`: a model for the retriever from conversations."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_convcoa.cli.options import AsJson, NoCache, option, panel
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.errors.redaction import redact

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.query.model import RetrieverModel

_kind, _length, _run = map(panel, ("What is trained", "Length and memory", "The run"))
_NOT_IN_CARD = ("data", "out", "resume", "device", "logs", "as_json", "no_cache")


def train(
    ctx: typer.Context,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Folders or files of conversations; of questions over titled articles, synthetic conversations are made.",
        ),
    ],
    out: Annotated[Path, option("DIR", "Folder of the model.")],
    head: Annotated[bool, _kind(None, "Only the head: weights on frozen vectors, in a minute or so.", "--head")] = False,
    full: Annotated[
        bool, _kind(None, "The whole encoder for questions and passages: they must be indexed again.", "--full")
    ] = False,
    dual_question: Annotated[
        bool,
        _kind(
            None, "A question encoder without Hopfield, to be compared with (evaluate retrieval --dual).", "--dual-question"
        ),
    ] = False,
    start: Annotated[
        Path | None, _kind("DIR", "Train this model's query encoder further, with the DPR loss; with --head, a head on it.")
    ] = None,
    distil_only: Annotated[
        bool, _kind(None, "Learn from synthetic conversations and rewrites alone, without the DPR loss.", "--distil-only")
    ] = False,
    synthetic: Annotated[
        int | None, _kind("N", "Synthetic conversations; 6000, or 4000 with --head.", "--synthetic", "--made", min=0)
    ] = None,
    encoder: Annotated[
        str | None, _kind("NAME", "sentence-transformers model or folder; all-MiniLM-L6-v2 without it.")
    ] = None,
    encoder_dtype: Annotated[str, _kind("TYPE", "What the frozen encoder computes in: int8 or float32.")] = "int8",
    steps: Annotated[int | None, _length("N", "Batches; enough to see all data by default.", min=1)] = None,
    batch_size: Annotated[int | None, _length("N", "Questions a step.", min=2)] = None,
    chunk: Annotated[int | None, _length("N", "Questions encoded at a time (gradient caching): less memory.", min=1)] = None,
    learning_rate: Annotated[float | None, _length("X", "The highest.")] = None,
    seed: Annotated[int, _length("S", "Of everything that is drawn; 0 by default.", min=0)] = 0,
    resume: Annotated[bool, _run(None, "Resume a training into DIR that was stopped.", "--resume")] = False,
    device: Annotated[str | None, _run("NAME", "cpu, cuda, ...; chosen without it.")] = None,
    logs: Annotated[Path | None, _run("DIR", "Folder for TensorBoard.")] = None,
    skip_invalid: Annotated[
        bool, _run(None, "Leave out queries that cannot be learned from, with a warning.", "--skip-invalid")
    ] = False,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Train a model for the retriever on conversations; of data with a split "dev" that split is left out.

    Without --head or --full a query encoder is trained: a copy of the encoder that reads a question with its turns. Passages
    stay as they are indexed. Ctrl-C stops after the step under way; run it again with --resume to finish.
    It needs the extra `train`.

    [bold]Examples[/bold]
      convcoa train data/my_conversations --out my.model
      convcoa train data/squad2 data/quac data/mine --out my.model --resume
      convcoa train data/mine --out small.model --head
      convcoa train data/mine data/squad2 --out both.model --head --start my.model
      convcoa evaluate retrieval data/mine --model my.model
    """
    for wrong, message in (
        (head and full, "--head and --full cannot be used together: name one of them, or neither"),
        (distil_only and (head or full), "--distil-only is for the query encoder, not for --head or --full"),
        (start is not None and full, "--start is for the query encoder and for --head, not for --full"),
        (synthetic is not None and full, "--synthetic is not for --full, which learns from real conversations alone"),
        (
            dual_question and (head or full or distil_only or start is not None or synthetic is not None),
            "--dual-question is trained from the encoder, on real conversations: it takes no other kind of training",
        ),
        (encoder_dtype != "int8" and full, "--encoder-dtype is for a frozen encoder: --full trains it in float32"),
    ):
        if wrong:
            raise InputError(message)
    from langgraph_convcoa.cli.documents import open_cache
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
    from langgraph_convcoa.retrieval.query.model import RetrieverModel
    from langgraph_convcoa.training.data import Invalid, load_single_turn, load_training_data
    from langgraph_convcoa.training.dual_encoder import DualQuestionSettings, train_dual_question
    from langgraph_convcoa.training.encoder import EncoderSettings, train_encoder
    from langgraph_convcoa.training.head import HeadSettings, train_head
    from langgraph_convcoa.training.job import TrainingJob
    from langgraph_convcoa.training.query_encoder import QueryEncoderSettings, train_query_encoder

    cache = None if no_cache else open_cache()
    job = TrainingJob(out, resume, device, logs, cache, progress=True, command=command_line(ctx, "train", data, out))
    job.check()
    check_device(device)
    invalid: Invalid = "skip" if skip_invalid else "error"
    single = {path: found for path in data if (found := load_single_turn(path, invalid=invalid)) is not None}
    rest = [path for path in data if path not in single]
    if (full or dual_question) and single:
        kind = "--full" if full else "--dual-question"
        raise InputError(
            f"{next(iter(single))} has single questions, and {kind} learns from conversations alone: leave it out"
        )
    if head and not rest:
        raise InputError("a head learns from conversations alone: name at least one folder of them")
    numbers = {"steps": steps, "batch_size": batch_size, "chunk": chunk, "learning_rate": learning_rate, "seed": seed}
    chosen: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
    kinds = (
        (full, EncoderSettings),
        (head, HeadSettings),
        (dual_question, DualQuestionSettings),
        (True, QueryEncoderSettings),
    )
    settings: Any = next(kind() for chosen_kind, kind in kinds if chosen_kind)
    settings = replace(settings, training=replace(settings.training, **chosen))
    if synthetic is not None:
        settings = replace(settings, synthetic=synthetic)
    conversations = load_training_data(rest, invalid=invalid) if rest else None
    if full and conversations is not None:
        model = train_encoder(conversations, encoder=encoder, settings=settings, job=job)
    else:
        if not head and (distil_only or start is not None):
            settings = replace(settings, distilled_first=1.0 if distil_only else 0.0)
        frozen = SentenceTransformerEncoder(encoder or DEFAULT_ENCODER, dtype=encoder_dtype)
        if dual_question and conversations is not None:
            model = train_dual_question(conversations, encoder=frozen, settings=settings, job=job)
        else:
            train_model: Any = train_head if head else train_query_encoder
            model = train_model(
                conversations,
                single_turn=list(single.values()),
                encoder=frozen,
                settings=settings,
                start=None if start is None else RetrieverModel.load(start),
                job=job,
            )
    _report(model, out, as_json)


def check_device(name: str | None) -> None:
    """Raise InputError where there is no such device."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:100]
        raise InputError(f"--device {name} cannot be used here ({reason}); name another, such as cpu") from None


def command_line(ctx: typer.Context, command: str, data: list[Path], out: Path) -> str:
    """The command for the model's card: data, folder and what was chosen of the training, without secrets."""
    words: list[object] = ["convcoa", command, *data, "--out", out]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        if name not in _NOT_IN_CARD and source is not None and source.name == "COMMANDLINE":
            value = ctx.params[name]
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], value]
    return redact(shlex.join(map(str, words)))


def _report(model: RetrieverModel, out: Path, as_json: bool) -> None:
    from langgraph_convcoa.cli.console import consoles, print_json
    from langgraph_convcoa.training.job import model_parts

    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    parts = list(model_parts(model))
    if as_json:
        print_json(
            {"model": str(out), "encoder": model.encoder, "parts": parts, "settings": dict(model.settings), "bytes": size}
        )
        return
    console, _ = consoles()
    console.out(f"{out}: {', '.join(parts)}, {size / 1e6:.1f} MB, for {model.encoder}")
