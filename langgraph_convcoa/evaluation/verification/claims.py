"""Verifiers on labelled claims: the shares of true and false claims that they accept, by kind, and the time for a claim."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.datasets.labelled_claims import LabelledClaim
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import Report, Table, shown
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verdicts import judge
from langgraph_convcoa.verification.verifier import Verifier

_BINS = 5
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class AcceptedRow:
    """The true and false claims of a kind, and the share of each that the verifier accepts; None without such claims."""

    kind: str
    true: int
    false: int
    true_accepted: float | None
    false_accepted: float | None

    @property
    def accepted(self) -> str:
        """The shares for a table: false / true."""
        return f"{shown(self.false_accepted) or '-'} / {shown(self.true_accepted) or '-'}"


@dataclass(frozen=True)
class VerifierRow:
    """A verifier over all claims.

    `calibration` has a triple for each fifth of [0, 1]: claims, their mean probability and the share that is true.
    `thresholds` has a triple for each T: T, and the shares of true and of false claims that it accepts.
    """

    verifier: str
    threshold: float
    auc: float
    all: AcceptedRow
    kinds: tuple[AcceptedRow, ...]
    calibration: tuple[tuple[int, float | None, float | None], ...]
    thresholds: tuple[tuple[float, float, float], ...]
    milliseconds: float


@dataclass(frozen=True)
class VerificationReport(Report):
    """The shares of claims that verifiers accept, with AUC, calibration and time."""

    rows: tuple[VerifierRow, ...]

    def tables(self) -> tuple[Table, ...]:
        heads = ("verifier", "T", "AUC", "false / true accepted", "ms a claim")
        first = [
            [row.verifier, shown(row.threshold, 2), shown(row.auc), row.all.accepted, shown(row.milliseconds, 1)]
            for row in self.rows
        ]
        count = f"{self.rows[0].all.true} true and {self.rows[0].all.false} false claims" if self.rows else ""
        names = [row.verifier for row in self.rows]
        kinds = [
            [one.kind, str(one.false), str(one.true), *(row.kinds[place].accepted for row in self.rows)]
            for place, one in enumerate(self.rows[0].kinds if self.rows else ())
        ]
        tables = [Table("", heads, first, count)]
        if kinds:
            columns = ("kind", "false", "true", *(f"{name}: false / true accepted" for name in names))
            tables.append(Table("by kind", columns, kinds))
        bins = [
            [row.verifier, f"{n / _BINS:.1f} to {(n + 1) / _BINS:.1f}", str(count), shown(mean) or "-", shown(share) or "-"]
            for row in self.rows
            for n, (count, mean, share) in enumerate(row.calibration)
        ]
        tables.append(Table("calibration", ("verifier", "probability", "claims", "mean", "true"), bins, left=2))
        points = [
            [row.verifier, f"{least:.1f}", f"{shown(false)} / {shown(true)}"]
            for row in self.rows
            for least, true, false in row.thresholds
        ]
        tables.append(Table("other thresholds", ("verifier", "T", "false / true accepted"), points, left=2))
        return tuple(tables)


def evaluate_verification(
    claims: Sequence[LabelledClaim],
    verifiers: Sequence[str | Verifier] = ("default", "lexical"),
    *,
    progress: Progress = False,
) -> VerificationReport:
    """Judge labelled claims as a graph does (`judge`), with several verifiers.

    Raises:
        InputError: There are no true or no false claims, or a verifier is not known.
        RetrievalError: A verifier cannot be loaded.
    """
    truth = np.array([claim.supported for claim in claims], dtype=bool)
    if truth.all() or not truth.any():
        raise InputError("Verification is measured with true and with false claims; the data has only one of them.")
    judges = [as_verifier(verifier) for verifier in verifiers]
    kinds = np.array([claim.kind for claim in claims])
    rows = []
    evidence = {claim.evidence: Evidence(claim.evidence) for claim in claims}
    with track(progress, len(judges) * len(claims), "Verifying") as advance:
        for verifier in judges:
            _ = verifier.threshold  # loads the verifier, which is not timed
            start = time.perf_counter()
            found = []
            for claim in claims:
                [verdict] = judge([claim.claim], evidence[claim.evidence], verifier)
                found.append(verdict.score)
                advance(1)
            seconds = time.perf_counter() - start
            scores = np.array(found)
            accepted = scores > verifier.threshold
            rows.append(
                VerifierRow(
                    verifier.name,
                    verifier.threshold,
                    float(roc_auc_score(truth, scores)),
                    _accepted("all", truth, accepted),
                    tuple(
                        _accepted(kind, truth[kinds == kind], accepted[kinds == kind])
                        for kind in sorted(set(kinds.tolist()) - {""})
                    ),
                    _calibration(scores, truth),
                    tuple((t, float((scores[truth] > t).mean()), float((scores[~truth] > t).mean())) for t in _THRESHOLDS),
                    1000 * seconds / len(claims),
                )
            )
    return VerificationReport(tuple(rows))


def _accepted(kind: str, truth: npt.NDArray[np.bool_], accepted: npt.NDArray[np.bool_]) -> AcceptedRow:
    true, false = accepted[truth], accepted[~truth]
    shares = (float(part.mean()) if len(part) else None for part in (true, false))
    return AcceptedRow(kind, len(true), len(false), *shares)


def _calibration(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.bool_]
) -> tuple[tuple[int, float | None, float | None], ...]:
    places = np.clip((scores * _BINS).astype(int), 0, _BINS - 1)
    bins: list[tuple[int, float | None, float | None]] = []
    for n in range(_BINS):
        chosen = places == n
        mean, share = (float(part[chosen].mean()) if chosen.any() else None for part in (scores, truth))
        bins.append((int(chosen.sum()), mean, share))
    return tuple(bins)
