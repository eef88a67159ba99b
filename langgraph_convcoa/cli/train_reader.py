"""`convcoa train-reader`: a small language model that reads evidence as a graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli.options import AsJson, option, panel

_kind, _length, _run = map(panel, ("What is trained", "Length and memory", "The run"))


def train_reader(
    ctx: typer.Context,
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help="Folders or files of questions with answers and passages.")
    ],
    model: Annotated[str, option("NAME", "Causal language model of Hugging Face, by name or folder; it is not changed.")],
    out: Annotated[Path, option("DIR", "Folder of the reader.")],
    no_graph: Annotated[
        bool, _kind(None, "LoRA alone, without graph attention: what a reader is to be compared with.", "--no-graph")
    ] = False,
    rank: Annotated[int, _kind("N", "Of LoRA; 0 trains the whole language model, for very small ones.", min=0)] = 16,
    longest: Annotated[int, _length("N", "Tokens of evidence to a question.", min=8)] = 512,
    passages: Annotated[int, _length("N", "Passages to a question, gold ones among them.", min=1)] = 4,
    examples: Annotated[int | None, _length("N", "Questions of each data set, drawn; all by default.", min=1)] = None,
    steps: Annotated[int | None, _length("N", "Batches; enough to see all data once by default.", min=1)] = None,
    batch_size: Annotated[int, _length("N", "Questions a step.", min=1)] = 4,
    chunk: Annotated[int | None, _length("N", "Questions read at a time: less memory, more time.", min=1)] = None,
    learning_rate: Annotated[float, _length("X", "The highest.")] = 5e-4,
    seed: Annotated[int, _length("S", "Of everything that is drawn.", min=0)] = 0,
    resume: Annotated[bool, _run(None, "Resume a training into DIR that was stopped.", "--resume")] = False,
    device: Annotated[str | None, _run("NAME", "cpu, cuda, ...; chosen without it.")] = None,
    logs: Annotated[Path | None, _run("DIR", "Folder for TensorBoard.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a reader: graph attention over the evidence's tokens, and LoRA on a language model that stays as it is.

    Questions are taken whose answer is of up to 8 words and stands in a gold passage; of data with a split "dev" that split
    is left out, else a fifth. Ctrl-C stops after the step under way; run it again with --resume to finish.
    It needs the extra `graph-reader`.

    [bold]Examples[/bold]
      convcoa train-reader data/squad2 --model HuggingFaceTB/SmolLM2-135M-Instruct --out my.reader
      convcoa train-reader data/squad2 --model HuggingFaceTB/SmolLM2-135M-Instruct --out plain.reader --no-graph
      convcoa evaluate reader data/squad2 plain.reader my.reader
    """
    from langgraph_convcoa.cli.train import check_device, command_line
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.datasets.splits import split_part
    from langgraph_convcoa.reasoning.graph_reader.model import ReaderSettings, check_model
    from langgraph_convcoa.reasoning.graph_reader.storage import check_reader_folder
    from langgraph_convcoa.training.job import TrainingJob
    from langgraph_convcoa.training.reader import ReaderTraining, reader_examples
    from langgraph_convcoa.training.reader import train_reader as run

    numbers: dict[str, Any] = {"steps": steps, "batch_size": batch_size, "chunk": chunk, "learning_rate": learning_rate}
    settings = ReaderTraining(
        replace(ReaderTraining().training, **numbers, seed=seed),
        ReaderSettings(graph=not no_graph, rank=rank, longest=longest, seed=seed),
    )
    job = TrainingJob(out, resume, device, logs, progress=True, command=command_line(ctx, "train-reader", data, out))
    job.check_place()
    check_reader_folder(out)
    check_device(device)
    check_model(model)
    found = []
    for path in data:
        part = split_part(load_dataset(path), "train")
        found += reader_examples(part.dataset, passages=passages, sample=examples, seed=seed)
    run(found, model, settings=settings, job=job)
    _report(out, len(found), as_json)


def _report(out: Path, examples: int, as_json: bool) -> None:
    from langgraph_convcoa.cli.console import consoles, print_json

    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    if as_json:
        print_json({"reader": str(out), "examples": examples, "bytes": size})
        return
    console, _ = consoles()
    console.out(f"{out}: a reader of {size / 1e6:.1f} MB, trained on {examples:,} questions")
