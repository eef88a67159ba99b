"""What `convcoa bench encoder` reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table

from langgraph_convcoa.evaluation.bench.outliers import Outliers


@dataclass(frozen=True)
class EncoderRow:
    """One type.

    Attributes:
        dtype: The type.
        attention: The attention.
        steps: How many steps it was trained before.
        cosine: Mean cosine of its vectors with those of float32, else alike.
        least_cosine: The least of them.
        mrr: Mean reciprocal rank over the data, None without.
        recall_10: Recall@10, None without data.
        texts_per_second: Median over the runs.
        to_float32: That over the one of float32.
        weights_mb: Memory of the weights, in millions of bytes.
    """

    dtype: str
    attention: str
    steps: int
    cosine: float
    least_cosine: float
    mrr: float | None
    recall_10: float | None
    texts_per_second: float
    to_float32: float
    weights_mb: float


@dataclass(frozen=True)
class OutlierRow:
    """The activations of the encoder in float32, with an attention, after so many steps of training."""

    attention: str
    steps: int
    outliers: Outliers


@dataclass(frozen=True)
class EncoderReport:
    """What was measured of one encoder.

    Attributes:
        model: Its name or folder.
        rows: One for each type, attention and number of steps.
        outliers: Its activations, for each attention and number of steps.
        texts: How many texts were timed.
        tokens: Their mean length in tokens.
        threads: Threads that torch used.
        runs: Timed repetitions, the types alternating.
        dataset: Name of the data, None without.
        queries: How many queries were ranked.
    """

    model: str
    rows: tuple[EncoderRow, ...]
    outliers: tuple[OutlierRow, ...]
    texts: int
    tokens: float
    threads: int
    runs: int
    dataset: str | None
    queries: int

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)

    def __rich__(self) -> Group:
        data = f"; MRR over {self.queries} queries of {self.dataset}, whole passages" if self.dataset else ""
        types = Table(title=self.model)
        types.caption = (
            f"{self.texts} texts of {self.tokens:.0f} tokens, {self.threads} threads, {self.runs} alternating runs{data}"
        )
        for name in (
            "type",
            "attention",
            "steps",
            "cosine",
            "least",
            "MRR",
            "Recall@10",
            "texts/s",
            "to float32",
            "weights, MB",
        ):
            types.add_column(name, justify="left" if name in ("type", "attention") else "right")
        for r in self.rows:
            quality = ["" if value is None else f"{value:.4f}" for value in (r.mrr, r.recall_10)]
            times = (f"{r.texts_per_second:.0f}", f"{r.to_float32:.2f}", f"{r.weights_mb:.1f}")
            types.add_row(r.dtype, r.attention, str(r.steps), f"{r.cosine:.5f}", f"{r.least_cosine:.5f}", *quality, *times)
        outliers = Table(title="outliers: infinity norm and kurtosis of the activations")
        for name in ("attention", "steps", "norm, attention", "kurtosis", "norm, layer", "kurtosis"):
            outliers.add_column(name, justify="left" if name == "attention" else "right")
        for row in self.outliers:
            o = row.outliers
            values = (o.attention_norm, o.attention_kurtosis, o.layer_norm, o.layer_kurtosis)
            outliers.add_row(row.attention, str(row.steps), *(f"{value:.2f}" for value in values))
        return Group(types, outliers)
