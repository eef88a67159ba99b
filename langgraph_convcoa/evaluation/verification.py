"""Measurements of verifiers on labelled claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.datasets.labelled_claims import LabelledClaim
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.verification.answer_check import judge
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import Verifier

VERIFIERS = ("default", "lexical")
_BINS = 5
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class AcceptedRow:
    """Numbers of true and false claims of a kind, and the accepted share of each; a share is None without such claims."""

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
    """The figures of a verifier over all claims."""

    verifier: str
    threshold: float
    auc: float
    all: AcceptedRow
    kinds: tuple[AcceptedRow, ...]
    # For each fifth of [0, 1]: the number of claims, their mean probability, and the share of true claims.
    calibration: tuple[tuple[int, float | None, float | None], ...]
    thresholds: tuple[tuple[float, float, float], ...]  # T, and the shares of true and of false claims that it accepts.
    milliseconds: float


@dataclass(frozen=True)
class VerificationReport(Report):
    """The shares of claims that verifiers accept, with AUC, calibration and time."""

    rows: tuple[VerifierRow, ...]

    def tables(self) -> tuple[Table, ...]:
        first = [
            [row.verifier, shown(row.threshold, 2), shown(row.auc), row.all.accepted, shown(row.milliseconds, 1)]
            for row in self.rows
        ]
        count = f"{self.rows[0].all.true} true and {self.rows[0].all.false} false claims" if self.rows else ""
        tables = [Table("", ("verifier", "T", "AUC", "false / true accepted", "ms a claim"), first, count)]
        kinds = [
            [same[0].kind, str(same[0].false), str(same[0].true), *(one.accepted for one in same)]
            for same in zip(*(row.kinds for row in self.rows), strict=True)
        ]
        if kinds:
            columns = ("kind", "false", "true", *(f"{row.verifier}: false / true accepted" for row in self.rows))
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
    claims: Sequence[LabelledClaim], verifiers: Sequence[str | Verifier] = VERIFIERS, *, progress: Progress = False
) -> VerificationReport:
    """Judge labelled claims as a graph does (`judge`), with several verifiers.

    Raises InputError if there are no true or no false claims, or a verifier is not known, and RetrievalError if a verifier
    cannot be loaded.
    """
    truth = np.array([claim.supported for claim in claims], dtype=bool)
    if truth.all() or not truth.any():
        raise InputError("Verification is measured with true and with false claims; the data has only one of them.")
    judges = [as_verifier(verifier) for verifier in verifiers]
    kinds = np.array([claim.kind for claim in claims])
    evidence = {claim.evidence: Evidence(claim.evidence) for claim in claims}
    rows = []
    with track(progress, len(judges) * len(claims), "Verifying") as advance:
        for verifier in judges:
            threshold = verifier.threshold  # loads the verifier, which is not timed
            start = time.perf_counter()
            found = []
            for claim in claims:
                [verdict] = judge([claim.claim], evidence[claim.evidence], verifier)
                found.append(verdict.score)
                advance(1)
            milliseconds = 1000 * (time.perf_counter() - start) / len(claims)
            scores = np.array(found)
            accepted = scores > threshold
            places = np.clip((scores * _BINS).astype(int), 0, _BINS - 1)
            row = VerifierRow(
                verifier=verifier.name,
                threshold=threshold,
                auc=float(roc_auc_score(truth, scores)),
                all=_accepted("all", truth, accepted),
                kinds=tuple(
                    _accepted(kind, truth[kinds == kind], accepted[kinds == kind])
                    for kind in sorted(set(kinds.tolist()) - {""})
                ),
                calibration=tuple(
                    (int((places == n).sum()), _share(scores[places == n]), _share(truth[places == n])) for n in range(_BINS)
                ),
                thresholds=tuple(
                    (t, float((scores[truth] > t).mean()), float((scores[~truth] > t).mean())) for t in _THRESHOLDS
                ),
                milliseconds=milliseconds,
            )
            rows.append(row)
    return VerificationReport(tuple(rows))


def _accepted(kind: str, truth: npt.NDArray[np.bool_], accepted: npt.NDArray[np.bool_]) -> AcceptedRow:
    true, false = accepted[truth], accepted[~truth]
    return AcceptedRow(kind, len(true), len(false), _share(true), _share(false))


def _share(values: npt.NDArray[Any]) -> float | None:
    return float(np.mean(values)) if len(values) else None
