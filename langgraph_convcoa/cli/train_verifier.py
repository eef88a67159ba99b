"""`convcoa train-verifier`: a cross-encoder that judges claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import consoles, print_json
from langgraph_convcoa.cli.options import AsJson, option
from langgraph_convcoa.cli.train import check_device, command_line


def train_verifier(
    ctx: typer.Context,
    out: Annotated[Path, option("DIR", "Folder of the training; the model is in DIR/model.")],
    data: Annotated[
        list[Path] | None, typer.Argument(metavar="[DATA...]", help="Files of labelled claims beside those of the package.")
    ] = None,
    only: Annotated[bool, option(None, "Leave out the claims of the package.", "--only")] = False,
    base: Annotated[str | None, option("NAME", "Model to start from; all-MiniLM-L6-v2 by default.")] = None,
    steps: Annotated[int, option("N", "Batches.", min=1)] = 4_000,
    batch_size: Annotated[int, option("N", "Pairs in a batch.", min=2)] = 32,
    learning_rate: Annotated[float, option("X", "The highest.")] = 1e-4,
    premise_words: Annotated[int, option("N", "Longest premise, in words.", min=5)] = 60,
    seed: Annotated[int, option("S", "Of everything that is drawn.", min=0)] = 0,
    resume: Annotated[bool, option(None, "Resume a training that was stopped.", "--resume")] = False,
    device: Annotated[str | None, option("NAME", "cpu, cuda, ...; chosen without it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a verifier on labelled claims: true and false sentences about a passage.

    The package has 11,720 claims to train on and 622 others to test with. On two cores a step takes one to three seconds; a
    training that was stopped is resumed with --resume. It needs the extra `train`.

    [bold]Examples[/bold]
      convcoa train-verifier --out my.verifier
      convcoa train-verifier mine.jsonl --out my.verifier --steps 8000 --resume
      convcoa evaluate verification --verifiers default,my.verifier/model
    """
    from langgraph_convcoa.datasets.labelled_claims import packaged_claims, read_claims
    from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
    from langgraph_convcoa.training.verifier import VerifierSettings, train_verifier

    check_device(device)
    files = data or []
    claims = [claim for path in files for claim in read_claims(path)]
    if not only:
        claims += packaged_claims("train")
    verifier = train_verifier(
        claims,
        out,
        base=base or DEFAULT_ENCODER,
        settings=VerifierSettings(steps, batch_size, learning_rate, premise_words=premise_words, seed=seed),
        resume=resume,
        device=device,
        sources=[path.name for path in files] + ([] if only else ["the package's claims"]),
        command=command_line(ctx, "train-verifier", files, out),
        progress=True,
    )
    if as_json:
        print_json({"model": verifier.name, "claims": len(claims), "steps": steps})
    else:
        consoles()[0].out(f"{verifier.name}: a verifier trained on {len(claims)} claims")
