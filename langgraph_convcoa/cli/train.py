"""`convcoa train`: a model for the retriever from conversations."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_convcoa.cli.options import AsJson, NoCache
from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langgraph_convcoa.datasets.queries import Dataset
    from langgraph_convcoa.retrieval.query.model import RetrieverModel
    from langgraph_convcoa.training.data import TrainingData

_MODES = "name one of --head and --full, or neither"


def train(
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Folders or files of conversations; of questions over titled articles, conversations are made.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the model.", show_default=False)],
    head: Annotated[bool, typer.Option("--head", help="Only the head: weights on frozen vectors, in a minute or so.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The whole encoder for questions and passages: they must be indexed anew.")
    ] = False,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="sentence-transformers model or folder; all-MiniLM-L6-v2 without it.", show_default=False
        ),
    ] = None,
    encoder_dtype: Annotated[
        str, typer.Option("--encoder-dtype", metavar="TYPE", help="What the frozen encoder computes in; see bench encoder.")
    ] = "auto",
    attention: Annotated[
        str, typer.Option(metavar="auto|softmax|softmax1", help="Attention of the encoder that --full trains.")
    ] = "auto",
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", help="How often all is seen.", show_default=False)] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Batches, instead of epochs.", show_default=False)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=2, metavar="N", help="Questions a step.", show_default=False)
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Questions encoded at a time (gradient caching): less memory.", show_default=False
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", metavar="X", help="The highest.", show_default=False)
    ] = None,
    made: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Conversations to make; 6000 by default, 4000 with --head.", show_default=False),
    ] = None,
    distil_only: Annotated[
        bool, typer.Option("--distil-only", help="Learn from made conversations and rewrites alone, without the DPR loss.")
    ] = False,
    on_tower: Annotated[
        Path | None,
        typer.Option(
            "--on-tower", metavar="DIR", help="With --head: a head on this model's query encoder.", show_default=False
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--start",
            metavar="DIR",
            help="Go on from this model's query encoder, with the DPR loss from the first step.",
            show_default=False,
        ),
    ] = None,
    average_with: Annotated[
        Path | None,
        typer.Option("--average-with", metavar="DIR", help="Average the query encoder with this model's.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Of everything that is drawn.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training into DIR that was stopped.")] = False,
    logs: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for TensorBoard.", show_default=False)] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="cpu, cuda, ...; chosen without it.", show_default=False)
    ] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out queries that cannot be learned from, with a warning.")
    ] = False,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Train a model for the retriever on conversations; of data with a split "dev" that split is left out.

    Without --head or --full a query encoder is trained: a copy of the encoder that reads a question with its turns. Passages
    stay as they are indexed. Ctrl-C stops after the step under way; run it again with --resume and it goes on.

    [bold]Examples[/bold]

      convcoa train data/my_conversations --out my.model

      convcoa train data/squad2 data/quac data/mine --out my.model --resume

      convcoa train data/mine --out small.model --head

      convcoa train data/mine data/squad2 --out both.model --head --on-tower my.model

      convcoa evaluate retrieval data/mine --model my.model
    """
    if head and full:
        raise InputError(f"--head and --full cannot be used together: {_MODES}")
    if (distil_only or start is not None or average_with is not None) and (head or full):
        raise InputError("--distil-only, --start and --average-with are for the query encoder, not for --head or --full")
    if on_tower is not None and not head:
        raise InputError("--on-tower is for --head: it names the model whose query encoder the head stands on")
    if attention != "auto" and not full:
        raise InputError("--attention is for --full, which trains the encoder")
    if made is not None and full:
        raise InputError("--made is for the query encoder and for --head: --full learns from real conversations alone")
    if encoder_dtype != "auto" and full:
        raise InputError("--encoder-dtype is for a frozen encoder: --full trains it in float32")
    given = {
        "epochs": epochs, "steps": steps, "batch_size": batch_size, "chunk": chunk,
        "learning_rate": learning_rate, "seed": seed,
    }  # fmt: skip
    from langgraph_convcoa.cli.documents import open_cache
    from langgraph_convcoa.retrieval.query.model import check_model_folder

    check_model_folder(out)
    _check_device(device)
    conversations, single = _read(data, skip_invalid)
    if full and single:
        raise InputError(f"{single[0].name} has single questions, and --full learns from conversations alone: leave it out")
    cache = None if no_cache else open_cache()
    flags = {
        "--head": head, "--full": full, "--encoder": encoder, "--made": made, "--distil-only": distil_only,
        "--on-tower": on_tower, "--start": start, "--average-with": average_with, "--epochs": epochs, "--steps": steps,
        "--batch-size": batch_size, "--chunk": chunk, "--learning-rate": learning_rate, "--seed": seed or None,
        "--encoder-dtype": encoder_dtype if encoder_dtype != "auto" else None,
        "--attention": attention if attention != "auto" else None, "--skip-invalid": skip_invalid,
    }  # fmt: skip
    shared: dict[str, Any] = {
        "out": out, "cache": cache, "resume": resume, "logs": logs, "progress": True, "device": device,
        "card": _card(data, conversations, single, out, flags),
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None}
    if head:
        shared["on"] = _with_query_encoder(on_tower, "--on-tower")
        model = _head(conversations, single, encoder, encoder_dtype, made, chosen, shared)
    elif full:
        model = _full(conversations, encoder, attention, chosen, shared)
    else:
        for name, folder in (("start", start), ("average_with", average_with)):
            named = _with_query_encoder(folder, f"--{name.replace('_', '-')}")
            shared[name] = named.query_encoder if named is not None else None
        given_recipe = {"made": made, "distilled_first": 1.0 if distil_only else 0.0 if start is not None else None}
        model = _query_encoder(conversations, single, encoder, encoder_dtype, given_recipe, chosen, shared)
    _report(model, out, as_json)


def _check_device(name: str | None) -> None:
    """Raise InputError where there is no such device."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:100]
        raise InputError(f"--device {name} cannot be used here ({reason}); name another, such as cpu") from None


def _read(data: Sequence[Path], skip_invalid: bool) -> tuple[TrainingData | None, list[Dataset]]:
    """The conversations, and the single-turn data that conversations are made of."""
    from langgraph_convcoa.training.data import load_training_data
    from langgraph_convcoa.training.synthetic.single_turn import load_single_turn

    invalid: Any = "skip" if skip_invalid else "error"
    single = {path: found for path in data if (found := load_single_turn(path, invalid=invalid)) is not None}
    rest = [path for path in data if path not in single]
    return (load_training_data(rest, invalid=invalid) if rest else None), list(single.values())


def _head(
    data: TrainingData | None,
    single: list[Dataset],
    encoder: str | None,
    dtype: str,
    made: int | None,
    chosen: dict[str, Any],
    shared: dict[str, Any],
) -> RetrieverModel:
    from dataclasses import replace

    from langgraph_convcoa.training.head.training import HeadSettings, train_head

    if data is None:
        raise InputError("a head learns from conversations alone: name at least one folder of them")
    settings = HeadSettings()
    settings = replace(
        settings,
        training=replace(settings.training, **chosen),
        made=settings.made if made is None else made,
    )
    return train_head(data, single_turn=single, encoder=_encoder(encoder, dtype), settings=settings, **shared)


def _query_encoder(
    data: TrainingData | None,
    single: list[Dataset],
    encoder: str | None,
    dtype: str,
    given: dict[str, Any],
    chosen: dict[str, Any],
    shared: dict[str, Any],
) -> RetrieverModel:
    from dataclasses import replace

    from langgraph_convcoa.training.query_encoder.recipe import QueryEncoderRecipe, train_query_encoder

    recipe = QueryEncoderRecipe(**{name: value for name, value in given.items() if value is not None})
    recipe = replace(recipe, training=replace(recipe.training, **chosen))
    return train_query_encoder(data, single_turn=single, encoder=_encoder(encoder, dtype), recipe=recipe, **shared)


def _full(
    data: TrainingData | None, encoder: str | None, attention: str, chosen: dict[str, Any], shared: dict[str, Any]
) -> RetrieverModel:
    from dataclasses import replace

    from langgraph_convcoa.training.encoder.full import FullSettings, train_full

    if data is None:
        raise InputError("--full learns from conversations and their passages: name at least one folder of them")
    settings = FullSettings()
    settings = replace(settings, training=replace(settings.training, **chosen))
    return train_full(data, encoder=encoder, attention=attention, settings=settings, **shared)  # type: ignore[arg-type]


def _with_query_encoder(folder: Path | None, option: str) -> RetrieverModel | None:
    from langgraph_convcoa.retrieval.query.model import RetrieverModel

    if folder is None:
        return None
    model = RetrieverModel.load(folder)
    if model.query_encoder is None:
        raise InputError(f"{option} {folder}: this model has no query encoder")
    return model


def _encoder(name: str | None, dtype: str) -> Any:
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

    return SentenceTransformerEncoder(name or DEFAULT_ENCODER, dtype=dtype)


def _card(
    paths: Sequence[Path], data: TrainingData | None, single: Sequence[Dataset], out: Path, flags: dict[str, Any]
) -> Any:
    from langgraph_convcoa.training.card import model_card

    words: list[object] = ["convcoa", "train", *paths, "--out", out]
    for name, value in flags.items():
        if value is not None and value is not False:
            words += [name] if value is True else [name, value]
    command = shlex.join(map(str, words))
    counts = dict(data.sources if data is not None else {}) | {one.name: len(one.queries) for one in single}
    return lambda model: model_card(model, counts, command)


def _report(model: RetrieverModel, out: Path, as_json: bool) -> None:
    from langgraph_convcoa.cli.console import consoles, print_json

    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    parts = [
        name
        for name, part in (
            ("weights", model.weights),
            ("state", model.state),
            ("query encoder", model.query_encoder),
            ("encoder", model.encoder_folder),
        )
        if part is not None
    ]
    if as_json:
        print_json(
            {"model": str(out), "encoder": model.encoder, "parts": parts, "settings": dict(model.settings), "bytes": size}
        )
        return
    console, _ = consoles()
    console.out(f"{out}: {', '.join(parts)}, {size / 1e6:.1f} MB, for {model.encoder}", highlight=False)
