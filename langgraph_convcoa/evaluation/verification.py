"""Measurements of verifiers: on labelled claims, and on answers that people rated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.datasets.labelled_claims import LabelledClaim, RatedAnswer
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.verification.answer_check import CheckedSentence, Checker, judge
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import LexicalVerifier, Verifier

VERIFIERS = ("default", "lexical")
_BINS = 5
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_FAITHFUL, _FULLY = 3.0, 4.0


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
    """A verifier over all claims."""

    verifier: str
    threshold: float
    auc: float
    all: AcceptedRow
    kinds: tuple[AcceptedRow, ...]
    # For each fifth of [0, 1]: claims, their mean probability, and the share that is true.
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


@dataclass(frozen=True)
class RatingsRow:
    """A verifier over all answers; the score of an answer is the mean of its sentences' scores."""

    verifier: str
    auc: float  # of the scores, between answers rated at least 3 and the others
    spearman: float  # between scores and ratings
    rejected: float  # share of sentences in answers rated 4 that the verifier does not support
    sentences: int  # in answers rated 4


@dataclass(frozen=True)
class RatingsReport(Report):
    """How verifiers agree with people's ratings of whole answers."""

    answers: int
    rows: tuple[RatingsRow, ...]

    def tables(self) -> tuple[Table, ...]:
        heads = ("verifier", "AUC", "rank correlation", "rejected of fully faithful answers")
        rows = [
            [row.verifier, shown(row.auc), shown(row.spearman), f"{shown(row.rejected)} of {row.sentences} sentences"]
            for row in self.rows
        ]
        return (Table("", heads, rows, f"{self.answers} rated answers"),)


def evaluate_ratings(
    answers: Sequence[RatedAnswer], verifiers: Sequence[str | Verifier] = VERIFIERS, *, progress: Progress = False
) -> RatingsReport:
    """Score the sentences of rated answers as a graph does, against their passages and the conversation.

    Answers that claim nothing ("I do not know") are left out. Raises InputError if all answers are faithful or none is, and
    for the reasons of `evaluate_verification`.
    """
    # What a sentence claims does not depend on the verifier.
    claimed = [answer for answer in answers if _claims(answer, LexicalVerifier())]
    ratings = np.array([answer.faithfulness for answer in claimed])
    faithful = ratings >= _FAITHFUL
    if faithful.all() or not faithful.any():
        raise InputError("Ratings are compared over faithful and unfaithful answers; the data has only one of them.")
    rows = []
    judges = [as_verifier(verifier) for verifier in verifiers]
    with track(progress, len(judges) * len(claimed), "Verifying") as advance:
        for verifier in judges:
            scores, rejected = [], []
            for answer in claimed:
                claims = _claims(answer, verifier)
                scores.append(float(np.mean([sentence.verdict.score for sentence in claims])))
                if answer.faithfulness >= _FULLY:
                    rejected += [not sentence.stands for sentence in claims]
                advance(1)
            auc, rank = float(roc_auc_score(faithful, scores)), float(spearmanr(ratings, scores)[0])
            rows.append(RatingsRow(verifier.name, auc, rank, _share(np.array(rejected)) or 0.0, len(rejected)))
    return RatingsReport(len(claimed), tuple(rows))


def _claims(answer: RatedAnswer, verifier: Verifier) -> list[CheckedSentence]:
    """The sentences of an answer that claim something, judged."""
    documents = [Document(text, metadata={"title": title}) for title, text in answer.evidence]
    checked = Checker(documents, answer.history, verifier, answer.question).check(answer.answer)
    return [sentence for sentence in checked if sentence.claims]
