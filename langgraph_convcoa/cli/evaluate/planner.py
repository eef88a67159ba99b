"""`convcoa evaluate planner`: planners before and after their training, on held-out conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson, Docs, IndexPlace, NoCache, Plot, option


def planner(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder or file of conversations with answers.")],
    planners: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Language models, or what convcoa train-planner made.")
    ],
    baseline: Annotated[str | None, option("MODEL", "Test the others against this one; the first without it.")] = None,
    docs: Docs = None,
    index: IndexPlace = None,
    sample: Annotated[int, option("N", "About how many questions, in whole conversations that are drawn.", min=1)] = 150,
    split: Annotated[str, option("NAME", "Their split, or all; dev is what training leaves out.")] = "dev",
    match: Annotated[str, option("em|cover_em|f1", "When an answer counts as right.")] = "cover_em",
    longest: Annotated[int, option("N", "Tokens of a plan.", min=8)] = 256,
    batch_size: Annotated[int, option("N", "Plans written at a time.", min=1)] = 16,
    temperature: Annotated[
        float, option("T", "Of the plans: 0 takes the most likely one, 1 draws as training does.", min=0.0, max=10.0)
    ] = 0.0,
    seed: Annotated[int, option("S", "Of the draw, the intervals and the tests.", min=0)] = 0,
    device: Annotated[str | None, option("NAME", "cpu, cuda, ...; cpu without it.")] = None,
    plot: Plot = None,
    as_json: AsJson = False,
    no_cache: NoCache = False,
) -> None:
    """Play held-out conversations with each planner: reward and its parts, answers, plans, guesses and costs.

    Plans are played over the graph without another model: what is open is extracted from the documents. The picture shows
    the training too. It needs the extra `grpo`.

    [bold]Example[/bold]
      convcoa evaluate planner data/quac HuggingFaceTB/SmolLM2-135M-Instruct warm planner --baseline warm --plot planner.png
    """
    from langgraph_convcoa.cli.documents import searched
    from langgraph_convcoa.cli.train import check_device
    from langgraph_convcoa.datasets.read import load_part
    from langgraph_convcoa.evaluation.planner import check_planners, evaluate_planners
    from langgraph_convcoa.training.planner.reward import RewardSettings
    from langgraph_convcoa.training.planner.turn import Environment

    check_device(device)
    reward = RewardSettings(match=match)  # type: ignore[arg-type]
    check_planners(planners, baseline)
    dataset, part = load_part(data, None if split == "all" else split, passages="optional" if docs or index else "required")
    environment = Environment(searched(dataset, docs, index, cache=not no_cache), reward=reward)
    report = evaluate_planners(
        dataset.name,
        dataset.queries,
        planners,
        environment,
        part=part,
        baseline=baseline,
        sample=sample,
        seed=seed,
        max_new_tokens=longest,
        batch_size=batch_size,
        temperature=temperature,
        device=device,
    )
    print_report(report, as_json, plot)
