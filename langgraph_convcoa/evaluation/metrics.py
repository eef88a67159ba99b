"""Metrics of answers and rankings, and tests of significance.

The relevance of a ranked document is binary; an id counts once, at its first place. Without a gold id, all metrics of rankings
raise ValueError, except `reciprocal_rank`. Intervals and tests are over conversations, whose questions are similar.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from scipy import stats

from langgraph_convcoa.reasoning.extractive.coverage import NOTHING
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.matching import known_references, match_answer

Numbers = npt.NDArray[np.float64]
MEASURES = ("cover_em", "em", "f1", "rouge_l")  #: The keys of `answer_metrics`.
_TESTS_AT_ONCE = 500
_DIGITS = 9


def answer_metrics(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Measures of a printed answer, each in [0, 1] and the best over the references; blank references are ignored.

    "em", "cover_em" and "f1" are those of `match_answer`. "rouge_l" (F of the longest common subsequence, words stemmed) is
    there if rouge-score is installed (extra `evaluate`). All are 0 for a refusal. Returns {} if no reference is known.

    Example:
        >>> found = answer_metrics("It was Ada Lovelace [1].", ["Ada Lovelace", "Lady Lovelace"])
        >>> found["em"], found["cover_em"], round(found["f1"], 2)
        (0.0, 1.0, 0.67)
    """
    right = known_references(references)
    found = match_answer(answer, right)
    if found and find_spec("rouge_score") is not None:
        from rouge_score.rouge_scorer import RougeScorer

        scores = RougeScorer(["rougeL"], use_stemmer=True).score_multi(right, without_marks(answer))
        found["rouge_l"] = float(scores["rougeL"].fmeasure)
    return dict.fromkeys(found, 0.0) if refuses(answer) else found


def refuses(answer: str) -> bool:
    """True if an answer begins by saying that nothing was found. The nearest passage may follow.

    Example:
        >>> refuses("I found nothing about this in the documents. The nearest passage is “Oslo” [1]."), refuses("Oslo [1].")
        (True, False)
    """
    return answer.startswith(NOTHING)


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1 / rank of the first gold id, 0 if no gold id is in the ranking.

    Example:
        >>> reciprocal_rank(["a", "b", "c"], {"b", "c"})
        0.5
    """
    return next((1 / rank for rank, identity in enumerate(ranking, 1) if identity in gold), 0.0)


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Gold ids among the first k, as a share of all gold ids.

    Example:
        >>> recall(["a", "b", "c"], {"b", "d"}, k=2)
        0.5
    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("Recall needs at least one gold id.")
    return len(wanted & set(ranking[:k])) / len(wanted)


def found_all(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """1 if all gold ids are among the first k, else 0: whether a question that needs all of them could be answered.

    Example:
        >>> found_all(["a", "b", "c"], {"a", "c"}, k=2), found_all(["a", "b", "c"], {"a", "c"}, k=3)
        (0.0, 1.0)
    """
    return float(recall(ranking, gold, k) == 1)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain of the first k (Järvelin & Kekäläinen 2002), gain 1 and discount log2(rank + 1).

    Example:
        >>> round(ndcg(["a", "b"], {"b"}, k=10), 4)
        0.6309
    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("nDCG needs at least one gold id.")
    places = {identity: rank for rank, identity in reversed([*enumerate(ranking[:k], 1)])}
    found = sorted(places[identity] for identity in wanted & places.keys())
    best = range(1, min(len(wanted), k) + 1)
    gain, highest = (sum(1 / math.log2(rank + 1) for rank in ranks) for ranks in (found, best))
    return gain / highest


@dataclass(frozen=True, eq=False)
class Sample:
    """Measures of the questions of one source: (n, m) `values`, and the conversation of each question."""

    values: Numbers
    conversations: Sequence[str]

    def totals(self) -> tuple[Numbers, Numbers]:
        """Sums (c, m) and counts (c,) of the questions of each conversation."""
        _, number = np.unique(np.asarray(self.conversations, dtype=object).astype(str), return_inverse=True)
        counts = np.bincount(number).astype(np.float64)
        sums = np.zeros((len(counts), self.values.shape[1]))
        np.add.at(sums, number, self.values)
        return sums, counts


def bootstrap_interval(samples: Sequence[Sample], *, resamples: int = 2000, seed: int = 0) -> tuple[Numbers, Numbers]:
    """95% percentile bootstrap of the macro mean (mean of the sources' means), resampling whole conversations (Efron 1979).

    Returns the lower and upper ends, (m,) each.

    Example:
        >>> same = Sample(np.ones((4, 1)), ["a", "a", "b", "c"])
        >>> [end.tolist() for end in bootstrap_interval([same])]
        [[1.0], [1.0]]
    """
    generator = np.random.default_rng(seed)
    means = []
    for sample in samples:
        sums, counts = sample.totals()
        drawn = generator.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=resamples).astype(np.float64)
        means.append(drawn @ sums / (drawn @ counts)[:, None])
    low, high = np.quantile(np.mean(means, axis=0), [0.025, 0.975], axis=0)
    return low, high


def paired_test(differences: Sequence[Sample], *, resamples: int = 9999, seed: int = 0) -> Numbers:
    """Two-sided paired randomisation test that the macro mean of the differences (the mean of the sources' means) is 0.

    Under the null hypothesis, the two methods are exchangeable, so that the signs of a conversation's differences can be
    flipped together (Smucker et al. 2007). With few conversations, all signs are tried; else `resamples` random draws.

    `differences` are one method's measures minus the other's, for each source. Returns p, (m,); p is 1 without a difference.
    """
    totals = [sample.totals() for sample in differences]
    shares = np.concatenate([sums / counts.sum() / len(differences) for sums, counts in totals])
    result = np.ones(shares.shape[1])
    for measure, column in enumerate(shares.T):
        # Conversations without a difference change nothing, whatever their sign.
        moved = column[column != 0]
        # With one conversation, both signs give an equally large sum.
        if len(moved) < 2:
            continue
        test = stats.permutation_test(
            (moved / np.abs(moved).max(),),
            # Sums are rounded, because the same terms in another order must give the same sum.
            lambda values, axis=-1: np.round(np.sum(values, axis=axis), _DIGITS),
            permutation_type="samples",
            vectorized=True,
            n_resamples=resamples,
            batch=_TESTS_AT_ONCE,
            rng=np.random.default_rng(seed),
        )
        result[measure] = test.pvalue
    return result
