"""`convcoa train`: a model for the retriever from conversations."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_convcoa.cli.options import AsJson, NoCache, argument, grouped, option, panel
from langgraph_convcoa.errors import InputError, first_line
from langgraph_convcoa.errors.redaction import redact

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.query.model import RetrieverModel
    from langgraph_convcoa.training.data import TrainingData
    from langgraph_convcoa.training.head import HeadSettings
    from langgraph_convcoa.training.query_encoder import QueryEncoderSettings

_kind, _length, _run = map(panel, ("What is trained", "Length", "The run"))
_NOT_IN_CARD = ("data", "out", "resume", "device", "logs", "as_json", "no_cache")


@dataclass(frozen=True)
class TrainingOptions:
    """What is trained, and for how long."""

    head: Annotated[bool, _kind(None, "Only the head: weights on frozen vectors, in a minute or so.", "--head")] = False
    start: Annotated[Path | None, _kind("DIR", "Train this model's query encoder further, with the DPR loss.")] = None
    distil_only: Annotated[bool, _kind(None, "Learn from rewrites alone, without the DPR loss.", "--distil-only")] = False
    synthetic: Annotated[int | None, _kind("N", "Synthetic conversations; 6000, or 4000 with --head.", min=0)] = None
    encoder: Annotated[str | None, _kind("NAME", "sentence-transformers model or folder; all-MiniLM-L6-v2 without it.")] = None
    encoder_dtype: Annotated[str, _kind("TYPE", "What the frozen encoder computes in: int8 or float32.")] = "int8"
    steps: Annotated[int | None, _length("N", "Batches; enough to see all data by default.", min=1)] = None
    batch_size: Annotated[int | None, _length("N", "Questions a step.", min=2)] = None
    learning_rate: Annotated[float | None, _length("X", "Peak learning rate.")] = None
    seed: Annotated[int, _length("S", "Of everything that is drawn; 0 by default.", min=0)] = 0

    def check(self) -> None:
        """Raise InputError if options contradict each other."""
        if self.head and (self.distil_only or self.start is not None):
            raise InputError("--distil-only and --start are for the query encoder: leave out --head")

    def settings(self) -> HeadSettings | QueryEncoderSettings:
        """The settings of the training."""
        from langgraph_convcoa.training.head import HeadSettings
        from langgraph_convcoa.training.query_encoder import QueryEncoderSettings

        names = ("steps", "batch_size", "learning_rate", "seed")
        given: dict[str, Any] = {name: number for name in names if (number := getattr(self, name)) is not None}
        found: HeadSettings | QueryEncoderSettings = HeadSettings() if self.head else QueryEncoderSettings()
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

    Without --head a query encoder is trained: a copy of the encoder that reads a question with its turns. Passages stay as
    they are indexed. Ctrl-C stops after the current step; run it again with --resume to finish. It needs the extra `train`.

    [bold]Examples[/bold]
      convcoa train data/my_conversations --out my.model
      convcoa train data/squad2 data/quac data/mine --out my.model --resume
      convcoa train data/mine --out small.model --head
      convcoa evaluate retrieval data/mine --model my.model
    """
    options.check()
    from langgraph_convcoa.cli.documents import open_cache
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
    from langgraph_convcoa.retrieval.query.model import RetrieverModel
    from langgraph_convcoa.training.head import train_head
    from langgraph_convcoa.training.query_encoder import train_query_encoder
    from langgraph_convcoa.training.trainer import TrainingJob

    cache = None if no_cache else open_cache()
    job = TrainingJob(out, resume, device, logs, cache, progress=True, command=command_line(ctx, "train", data, out))
    job.check()
    check_device(device)
    conversations, single = _read(data)
    if options.head and conversations is None:
        raise InputError("a head learns from conversations alone: name at least one folder of them")
    given: dict[str, Any] = {
        "single_turn": single,
        "encoder": SentenceTransformerEncoder(options.encoder or DEFAULT_ENCODER, dtype=options.encoder_dtype),
        "settings": options.settings(),
        "job": job,
    }
    if options.head and conversations is not None:
        model = train_head(conversations, **given)
    else:
        start = None if options.start is None else RetrieverModel.load(options.start)
        model = train_query_encoder(conversations, start=start, **given)
    _report(model, out, as_json)


def _read(data: list[Path]) -> tuple[TrainingData | None, list[Any]]:
    """The conversations of the data, and the data sets of single questions."""
    from langgraph_convcoa.training.data import load_single_turn, load_training_data

    single = {path: found for path in data if (found := load_single_turn(path)) is not None}
    rest = [path for path in data if path not in single]
    return (load_training_data(rest) if rest else None), list(single.values())


def check_device(name: str | None) -> None:
    """Raise InputError if there is no such device."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"--device {name} cannot be used here ({first_line(error)}); name another, such as cpu") from None


def command_line(ctx: typer.Context, command: str, data: list[Path], out: Path) -> str:
    """The command for the model's card: the data, the folder and the given options, without secrets."""
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
    from langgraph_convcoa.training.trainer import model_parts

    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    parts = list(model_parts(model))
    if as_json:
        print_json(
            {"model": str(out), "encoder": model.encoder, "parts": parts, "settings": dict(model.settings), "bytes": size}
        )
        return
    console, _ = consoles()
    console.out(f"{out}: {', '.join(parts)}, {size / 1e6:.1f} MB, for {model.encoder}")
