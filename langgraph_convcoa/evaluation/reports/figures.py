"""The figures of a question-answering run, computed from the answers of each method."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.evaluation.metrics.answers import MEASURES, corpus_bleu
from langgraph_convcoa.evaluation.metrics.judge import JUDGED, judge_agreement
from langgraph_convcoa.evaluation.metrics.ratios import contradictions, misled_by_retrieval, verification_statistics
from langgraph_convcoa.evaluation.metrics.significance import Sample, bootstrap_interval, paired_test
from langgraph_convcoa.evaluation.records import Answered, found_gold
from langgraph_convcoa.evaluation.reports.judged import MarkFigures, PreferenceFigures
from langgraph_convcoa.evaluation.runs.sweeps import Variant
from langgraph_convcoa.text.matching import is_cited
from langgraph_convcoa.text.words import sentences

LAST_ROUND = 15
"""Rounds from here on are one row of the curve."""
TESTS = 1999
"""Draws of the paired test."""

_ERRORS_SHOWN = 3
_BEHIND = re.compile(r"([.!?])((?:\s*\[\d+\])+)")


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency."""

    input: float
    output: float


@dataclass(frozen=True)
class Quality:
    """A measure of a method, in [0, 1]."""

    mean: float  # over the questions with a known answer; one that failed counts 0
    low: float  # 95% interval, by a bootstrap over conversations
    high: float
    # Of a paired randomisation test against the baseline on the questions that both were asked; None for the baseline.
    p: float | None
    questions: int


@dataclass(frozen=True)
class MeanCosts:
    """Means over the questions; `price` is of 1,000 questions, None where no prices were given."""

    input_tokens: float
    output_tokens: float
    tokens: float
    calls: float
    retrievals: float
    seconds: float
    price: float | None = None
    # Tokens by what they were spent on (instructions, conversation, evidence, reply), where the method's models count them.
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """The questions of one round of their conversations; `round` is the first of several at the end of the curve."""

    round: int
    questions: int
    right: float | None
    seconds: float
    tokens: float
    calls: float


@dataclass(frozen=True)
class CitationFigures:
    """Citations of the answers, which were checked against what was retrieved."""

    answers: int  # that are there
    cited: int  # with at least one citation
    sentences: int
    cited_sentences: int  # with a citation in or behind them
    removed: int  # marks that named no passage and were taken out


@dataclass(frozen=True)
class MethodFigures:
    """All figures of a method."""

    method: str
    asked: int  # questions asked, those that failed included
    failed: int  # questions without an answer, for the model or the method failed
    errors: dict[str, int]  # the commonest reasons with their counts
    malformed: int  # replies of the model that were not as asked for
    malformed_questions: int  # questions with such a reply
    without_reference: int  # questions whose right answer is not known; they count in the costs alone
    unjudged: int  # answers of which the judge said neither yes nor no, or failed
    quality: dict[str, Quality]  # by measure
    corpus_bleu: float | None  # BLEU of all answers together; None where none could be compared
    # Share of the questions with known passages for which one of them was retrieved; None of no such question.
    gold_found: float | None
    costs: MeanCosts
    rounds: tuple[Round, ...]
    sub_questions: float | None  # mean length of the chains; None for methods without
    verification: dict[str, Any] | None  # outcomes of the sub-questions; None for methods without a chain
    # Against closed-book over the same model; None where that is not among the methods, or this one retrieves not.
    misled: dict[str, Any] | None
    contradictions: dict[str, Any]  # with the method's own earlier answers
    agreement: list[dict[str, Any]]  # of the judge with exact match and cover-EM
    citations: CitationFigures | None = None  # None for methods that look nothing up
    marks: MarkFigures | None = None  # of a judge; None where none was asked for marks
    preference: PreferenceFigures | None = (
        None  # a judge's, against the first row; None where none was asked, and of the first
    )


@dataclass(frozen=True)
class RunFigures:
    """The figures of a run by method, which its tables and plots show."""

    methods: tuple[MethodFigures, ...]  # the figures of each row, in order; rows without an answer yet are left out
    rows: tuple[Variant, ...]
    measure: str  # what says right in the curves and ratios: the judge's verdict, cover-EM without a judge
    baseline: str  # the row that the others are tested against
    prices: Prices | None = None  # of a million tokens


@dataclass(frozen=True, eq=False)
class Values:
    """The measures of a method's answers, for tests between methods."""

    places: npt.NDArray[np.int64]  # numbers of the questions in the run, rising, (n,)
    measures: npt.NDArray[np.float64]  # (n, m) in the order of the names; not a number where there is none
    names: tuple[str, ...]
    conversations: tuple[str, ...]

    @classmethod
    def of(cls, answers: Sequence[Answered], order: Mapping[str, int], judged: bool) -> Values:
        """Of answers in the order of the run; a failed question has 0 where its answer is known."""
        names = (*MEASURES, JUDGED) if judged else MEASURES
        rows = np.full((len(answers), len(names)), np.nan)
        for row, answer in enumerate(answers):
            if answer.references:
                missing = 0.0 if answer.error else np.nan
                rows[row] = [answer.metrics.get(name, missing) for name in names]
        places = np.array([order[answer.id] for answer in answers], dtype=np.int64)
        return cls(places, rows, names, tuple(answer.conversation for answer in answers))

    def quality(self, baseline: Values | None, seed: int) -> dict[str, Quality]:
        """Means, intervals and tests; measures that no answer has are left out."""
        found = {}
        for column, name in enumerate(self.names):
            known = ~np.isnan(self.measures[:, column])
            if not known.any():
                continue
            values = self.measures[known, column : column + 1]
            low, high = bootstrap_interval([Sample(values, list(compress(self.conversations, known)))], seed=seed)
            p = None if baseline is None else self._test(baseline, column, seed)
            found[name] = Quality(float(values.mean()), float(low[0]), float(high[0]), p, int(known.sum()))
        return found

    def _test(self, baseline: Values, column: int, seed: int) -> float | None:
        _, mine, others = np.intersect1d(self.places, baseline.places, assume_unique=True, return_indices=True)
        less = self.measures[mine, column] - baseline.measures[others, column]
        both = ~np.isnan(less)
        if not both.any():
            return None
        conversations = [self.conversations[place] for place in mine[both]]
        return float(paired_test([Sample(less[both, None], conversations)], resamples=TESTS, seed=seed)[0])


def figures_of(
    method: str,
    answers: Sequence[Answered],
    values: Values,
    *,
    baseline: Values | None = None,
    closed_book: Sequence[Answered] | None = None,
    measure: str = "cover_em",
    prices: Prices | None = None,
    seed: int = 0,
) -> MethodFigures:
    """The figures of a method.

    Answers are in the order of the run, at least one; `closed_book` are those without retrieval of the same model; `measure`
    says right in the curve of rounds and in the ratios.
    """
    known = [answer for answer in answers if answer.references]
    given = [answer for answer in known if not answer.error]
    searched = [found_gold(answer.passages, answer.gold) for answer in answers if answer.gold and not answer.error]
    retrieves = any(answer.passages or answer.costs.retrievals for answer in answers)
    reasons = Counter(answer.error for answer in answers if answer.error)
    chains = [len(answer.chain) for answer in answers if answer.chain]
    judged = JUDGED in values.names
    return MethodFigures(
        method=method,
        asked=len(answers),
        failed=reasons.total(),
        errors=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_ERRORS_SHOWN]),
        malformed=sum(answer.malformed for answer in answers),
        malformed_questions=sum(bool(answer.malformed) for answer in answers),
        without_reference=len(answers) - len(known),
        unjudged=sum(JUDGED not in answer.metrics for answer in given) if judged else 0,
        quality=values.quality(baseline, seed),
        corpus_bleu=corpus_bleu([one.answer for one in given], [one.references for one in given]) if given else None,
        gold_found=float(np.mean(searched)) if searched and retrieves else None,
        costs=_costs(answers, prices),
        rounds=_rounds(answers, values, measure),
        sub_questions=float(np.mean(chains)) if chains else None,
        verification=verification_statistics(answers) if chains else None,
        misled=misled_by_retrieval(closed_book, answers, measure) if closed_book is not None and retrieves else None,
        contradictions=contradictions(answers),
        agreement=judge_agreement(given) if judged else [],
        citations=_citations([answer for answer in answers if not answer.error]) if retrieves else None,
    )


def _costs(answers: Sequence[Answered], prices: Prices | None = None) -> MeanCosts:
    names = ("input_tokens", "output_tokens", "calls", "retrievals", "seconds")
    spent = np.array([[getattr(answer.costs, name) for name in names] for answer in answers], dtype=np.float64)
    given, got, calls, retrievals, seconds = spent.mean(axis=0).tolist()
    price = None if prices is None else (given * prices.input + got * prices.output) / 1000
    parts = Counter[str]()
    for answer in answers:
        parts.update(answer.costs.parts)
    means = {name: count / len(answers) for name, count in parts.items()}
    return MeanCosts(given, got, given + got, calls, retrievals, seconds, price, means)


def _citations(given: Sequence[Answered]) -> CitationFigures:
    """Of answers that are there; a mark behind a full stop counts for the sentence before it."""
    whole = [[sentence.text for sentence in sentences(_BEHIND.sub(r"\2\1", answer.answer))] for answer in given]
    return CitationFigures(
        answers=len(given),
        cited=sum(is_cited(answer.answer) for answer in given),
        sentences=sum(map(len, whole)),
        cited_sentences=sum(is_cited(text) for texts in whole for text in texts),
        removed=sum(answer.removed for answer in given),
    )


def _rounds(answers: Sequence[Answered], values: Values, measure: str) -> tuple[Round, ...]:
    right = values.measures[:, values.names.index(measure)]
    places: dict[int, list[int]] = {}
    for place, answer in enumerate(answers):
        places.setdefault(min(answer.round, LAST_ROUND), []).append(place)
    found = []
    for number, chosen in sorted(places.items()):
        known = right[chosen][~np.isnan(right[chosen])]
        costs = _costs([answers[place] for place in chosen])
        mean = float(known.mean()) if len(known) else None
        found.append(Round(number, len(chosen), mean, costs.seconds, costs.tokens, costs.calls))
    return tuple(found)
