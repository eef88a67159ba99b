"""Verifiers on answers that people rated: whether the verifier's scores agree with the ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from langchain_core.documents import Document
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.datasets.labelled_claims import RatedAnswer
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import Report, Table, shown
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.verification.answers import CheckedSentence, Checker
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import LexicalVerifier, Verifier

_FAITHFUL, _FULLY = 3.0, 4.0


@dataclass(frozen=True)
class RatingsRow:
    """A verifier over all answers; the score of an answer is the mean of its sentences' scores.

    `auc` compares answers rated at least 3 with the others, and `spearman` scores with ratings. `rejected` is the share of
    sentences in answers rated 4 that the verifier does not support; there are `sentences` of them.
    """

    verifier: str
    auc: float
    spearman: float
    rejected: float
    sentences: int


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
    answers: Sequence[RatedAnswer], verifiers: Sequence[str | Verifier] = ("default", "lexical"), *, progress: Progress = False
) -> RatingsReport:
    """Score the sentences of rated answers as a graph does, against their passages and the conversation.

    Answers that claim nothing ("I do not know") are left out.

    Raises:
        InputError: All answers are faithful or none is, or a verifier is not known.
        RetrievalError: A verifier cannot be loaded.
    """
    # What a sentence claims does not depend on the verifier.
    claimed = [answer for answer in answers if _claims(answer, LexicalVerifier())]
    ratings = np.array([answer.faithfulness for answer in claimed])
    if not len(ratings) or (ratings >= _FAITHFUL).all() or (ratings < _FAITHFUL).all():
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
            auc, rank = roc_auc_score(ratings >= _FAITHFUL, scores), spearmanr(ratings, scores)[0]
            share = float(np.mean(rejected)) if rejected else 0.0
            rows.append(RatingsRow(verifier.name, float(auc), float(rank), share, len(rejected)))
    return RatingsReport(len(claimed), tuple(rows))


def _claims(answer: RatedAnswer, verifier: Verifier) -> list[CheckedSentence]:
    """The sentences of an answer that claim something, judged."""
    documents = [Document(text, metadata={"title": title}) for title, text in answer.evidence]
    checked = Checker(documents, answer.history, verifier, answer.question).check(answer.answer)
    return [sentence for sentence in checked if sentence.claims]
