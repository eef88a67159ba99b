"""`convcoa train-verifier`: a verifier that learns from labelled claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import consoles, print_json
from langgraph_convcoa.cli.options import AsJson, argument, option
from langgraph_convcoa.cli.train import check_device, command_line


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

    It starts from the package's verifier, so a few hundred claims of your own documents help. On two cores a step takes
    one to three seconds. A training that was stopped is resumed with --resume. It needs the extra `train`.

    [bold]Examples[/bold]
      convcoa train-verifier mine.jsonl --out my.verifier
      convcoa train-verifier mine.jsonl --out my.verifier --steps 3000 --resume
      convcoa evaluate verification test.jsonl --verifiers default,my.verifier/verifier.safetensors
    """
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
            command=command_line(ctx, "train-verifier", files, out),
            progress=True,
        )
    if as_json:
        print_json({"verifier": str(verifier.path), "claims": len(claims), "steps": steps, "threshold": verifier.threshold})
    else:
        consoles()[0].out(f"{verifier.path}: a verifier trained on {len(claims)} claims, T {verifier.threshold}")
