"""`convcoa evaluate reader`: what graph readers answer to the same questions over the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import print_report
from langgraph_convcoa.cli.options import AsJson, option


def reader(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder or file of questions with answers and passages.")],
    readers: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Readers of convcoa train-reader.")],
    sample: Annotated[int, option("N", "Questions, drawn.", min=1)] = 300,
    split: Annotated[str, option("NAME", "Their split, or all; dev is what training leaves out.")] = "dev",
    passages: Annotated[int, option("N", "Passages to a question, gold ones among them.", min=1)] = 4,
    seed: Annotated[int, option("S", "Of the draw, the intervals and the tests.", min=0)] = 0,
    device: Annotated[str | None, option("NAME", "cpu, cuda, ...; cpu without it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare readers that convcoa train-reader made: exact match and F1, the others tested against the first, in pairs.

    They are given the gold passages and their neighbours, as in training: readers are measured here, not retrieval.

    [bold]Example[/bold]
      convcoa evaluate reader data/squad2 plain.reader my.reader --sample 500
    """
    from langgraph_convcoa.cli.train import check_device
    from langgraph_convcoa.evaluation.reader import evaluate_readers

    check_device(device)
    chosen = None if split == "all" else split
    report = evaluate_readers(data, readers, split=chosen, sample=sample, passages=passages, seed=seed, device=device)
    print_report(report, as_json)
