"""The rows of a run's report: each method, and ours once more for each value of a setting that is swept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.registry import OURS

SWEPT = {"threshold": "T", "k": "k"}
"""What can be swept, and the names of its values in the rows (Pan et al. 2024b, tables 7 and 8)."""

_MOST_PASSAGES = 100


@dataclass(frozen=True)
class Variant:
    """A row: a method over a model, with a setting of its own or without."""

    label: str  # what its answers are called
    method: str
    model: int = 0  # which model, by its place among those of the run
    k: int | None = None  # passages a search; the run's when None
    threshold: float | None = None  # T of ours; the calibrated one when None
    swept: str = ""  # name of the setting that is swept, empty for none


def parse_sweeps(texts: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Sweeps as they are written on the command line."""
    sweeps: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        name = name.strip()
        if name not in SWEPT or name in sweeps:
            raise InputError(f"--sweep {text}: give {' and '.join(SWEPT)}, each once, such as threshold=0.3,0.5,0.75")
        try:
            values = tuple(dict.fromkeys(float(value) for value in listed.split(",")))
        except ValueError:
            raise InputError(f"--sweep {text}: the values are numbers with commas between, such as {name}=1,3,5") from None
        if name == "threshold" and not all(0 <= value <= 1 for value in values):
            raise InputError(f"--sweep {text}: a threshold lies between 0 and 1")
        if name == "k" and not all(1 <= value <= _MOST_PASSAGES and value == int(value) for value in values):
            raise InputError(f"--sweep {text}: k is a whole number from 1 to {_MOST_PASSAGES}")
        sweeps[name] = values
    return sweeps


def variants(
    methods: Sequence[str], models: Sequence[str] = ("",), sweeps: Mapping[str, Sequence[float]] | None = None
) -> list[Variant]:
    """The rows of a run, in the order of its report.

    Rows name their model where there are several (Pan et al. 2024b, table 10).

    Example:
        >>> [row.label for row in variants(["react", "ours"], sweeps={"threshold": (0.3, 0.75)})]
        ['react', 'ours', 'ours@T=0.3', 'ours@T=0.75']
        >>> [row.label for row in variants(["ours"], ["a", "b"])]
        ['ours@a', 'ours@b']
    """
    for kind, names in (("method", methods), ("model", models)):
        if not names or len({*names}) < len(names):
            raise InputError(f"Name at least one {kind}, and each {kind} once.")
    if sweeps and OURS not in methods:
        raise InputError("--sweep is of ours: add ours to --methods")
    rows = []
    for number, model in enumerate(models):
        of_model = f"@{model}" if len(models) > 1 else ""
        rows += [Variant(f"{name}{of_model}", name, number) for name in methods]
        for setting, values in (sweeps or {}).items():
            for value in values:
                k, threshold = (int(value), None) if setting == "k" else (None, value)
                label = f"{OURS}{of_model}@{SWEPT[setting]}={value:g}"
                rows.append(Variant(label, OURS, number, k, threshold, setting))
    return rows
