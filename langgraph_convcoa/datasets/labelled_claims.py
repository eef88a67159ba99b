"""Labelled claims with evidence, from the package or a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from langgraph_convcoa.datasets.rows import Row, json_lines
from langgraph_convcoa.errors import one_of


@dataclass(frozen=True)
class LabelledClaim:
    """A claim with its evidence."""

    claim: str
    evidence: tuple[tuple[str, str], ...]  # pairs of title and text
    supported: bool  # whether the evidence supports all of the claim
    kind: str = ""  # the part that is false, or that a true claim rewords: roles, direction, ...


def packaged_claims(part: Literal["train", "test"] = "test") -> list[LabelledClaim]:
    """The claims of the package: 29,179 over 2,517 passages to train on, 622 over 52 other passages to test on."""
    name = one_of("part", part, ("train", "test"))
    with as_file(files("langgraph_convcoa.datasets.claims") / f"{name}.jsonl.gz") as path:
        return list(read_claims(path))


def read_claims(path: str | Path) -> Iterator[LabelledClaim]:
    """Read the claims of a file, .jsonl or .jsonl.gz, in one of two forms.

    A row of the package has title, text and claims (a list of claim, supported, kind). A row of a labelled set has claim,
    evidence (a list of texts) and label: 2 is fully supported, 0 and 1 are not. Raises InputError for other rows.
    """
    for row in json_lines(Path(path)):
        if "response" in row:
            raise row.error(f"answers that people rated are compared in a checkout: python -m experiments.ratings {path}")
        if "claims" in row:
            evidence = ((row.optional("title"), row.text("text")),)
            inner = row["claims"]
            if not isinstance(inner, list):
                raise row.error("`claims` must be a list.")
            for one in inner:
                claim = Row(one, row.where)
                if not isinstance(claim.get("supported"), bool):
                    raise row.error("`supported` of a claim must be true or false.")
                yield LabelledClaim(claim.text("claim"), evidence, claim["supported"], claim.optional("kind"))
        else:
            if isinstance(row.get("label"), bool) or not isinstance(row.get("label"), int):
                raise row.error("`label` must be 0, 1 or 2.")
            texts = tuple(("", text) for text in row.strings("evidence"))
            yield LabelledClaim(row.text("claim"), texts, row["label"] == 2, row.optional("kind"))
