"""`convcoa warm-start`: a language model learns the form of plans from those of a stronger one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.options import AsJson, Docs, IndexPlace, NoCache, option, panel

_kept, _length, _run = map(panel, ("Which plans are kept", "Length", "The run"))


def warm_start(
    ctx: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder or file of conversations with answers.")],
    plans: Annotated[
        Path,
        option(
            "FILE|DIR", 'JSON lines of {"id", "plan"} or {"question", "history", "plan"}, or a run of convcoa evaluate qa.'
        ),
    ],
    model: Annotated[str, option("NAME", "Causal language model of Hugging Face, by name or folder; it is not changed.")],
    out: Annotated[Path, option("DIR", "Folder of the trained model, for convcoa train-planner --model.")],
    docs: Docs = None,
    index: IndexPlace = None,
    least: Annotated[float, _kept("R", "The reward that a plan's turn must have earned; 0.5 by default.")] = 0.5,
    best: Annotated[int, _kept("N", "The best plans of a turn, where there are several; 1 by default.", min=1)] = 1,
    epochs: Annotated[int, _length("N", "How often each plan is seen; 3 by default.", min=1)] = 3,
    steps: Annotated[int | None, _length("N", "So many batches instead.", min=1)] = None,
    batch_size: Annotated[int, _length("N", "Plans a step; 4 by default.", min=1)] = 4,
    learning_rate: Annotated[float, _length("X", "The highest; 5e-4 by default.")] = 5e-4,
    rank: Annotated[int, _length("N", "Of LoRA; 16 by default; 0 trains the whole model.", min=0)] = 16,
    seed: Annotated[int, _run("S", "Of everything that is drawn.", min=0)] = 0,
    device: Annotated[str | None, _run("NAME", "cpu, cuda, ...; chosen without it.")] = None,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Show a small model plans of a stronger one, before convcoa train-planner goes on from there.

    Each plan is played over the documents, and kept where its turn earned enough. Plans are taken of questions of the split
    train, or of four fifths of the conversations. It needs the extra `grpo`.

    [bold]Examples[/bold]
      convcoa evaluate qa data/quac --split train --model openai:gpt-4.1 --methods ours-without-look --gold-history --out run
      convcoa warm-start data/quac --plans run --model HuggingFaceTB/SmolLM2-135M-Instruct --out warm
      convcoa train-planner data/quac --model warm --out planner
    """
    from langgraph_convcoa.cli.documents import searched
    from langgraph_convcoa.cli.planner.plans import plans_of_run
    from langgraph_convcoa.cli.train import check_device, command_line
    from langgraph_convcoa.datasets.read import load_dataset
    from langgraph_convcoa.datasets.splits import split_part
    from langgraph_convcoa.training.planner.turn import Environment, playable
    from langgraph_convcoa.training.planner.warm_start import WarmStartSettings, check_model_folder, earned, read_plans
    from langgraph_convcoa.training.planner.warm_start import warm_start as run

    settings = WarmStartSettings(epochs, steps, batch_size, learning_rate, rank, seed)
    check_model_folder(out)
    check_device(device)
    dataset = load_dataset(data, passages="optional" if docs or index else "required")
    turns = playable(split_part(dataset, "train").dataset.queries)
    shown = plans_of_run(plans, turns) if plans.is_dir() else read_plans(plans, turns)
    environment = Environment(searched(dataset, docs, index, cache=not no_cache))
    kept = asyncio.run(earned(shown, environment, least=least, best=best))
    told = {"command": command_line(ctx, "warm-start", [data], out), "given": len(shown), "least": least}
    losses = run(model, kept, out, settings, device=device, told=told, log=not as_json)
    _report(out, len(shown), len(kept), losses, as_json)


def _report(out: Path, given: int, kept: int, losses: list[float], as_json: bool) -> None:
    from langgraph_convcoa.cli.console import consoles, print_json

    if as_json:
        print_json({"model": str(out), "plans": given, "kept": kept, "losses": losses})
        return
    console, _ = consoles()
    console.out(f"{out}: trained on {kept} of {given} plans, loss {losses[0]:.2f} to {losses[-1]:.2f}")
