"""Bootstrap intervals and paired tests over conversations, since the questions of one conversation are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Numbers = npt.NDArray[np.float64]

_TESTS_AT_ONCE = 500
_DIGITS = 9


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
    """95% percentile bootstrap of the mean over sources of each source's mean, resampling whole conversations (Efron 1979).

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
    macro = np.mean(means, axis=0)
    low, high = np.quantile(macro, [0.025, 0.975], axis=0)
    return low, high


def paired_test(differences: Sequence[Sample], *, resamples: int = 9999, seed: int = 0) -> Numbers:
    """Two-sided paired randomisation test that the mean over sources of each source's mean difference is 0.

    Under the null hypothesis the two methods are exchangeable, so that the signs of a conversation's differences can be
    flipped together (Smucker et al. 2007). With few conversations all signs are tried, else `resamples` random draws.

    `differences` are one method's measures minus the other's, for each source. Returns p, (m,); 1 if all are equal.
    """
    parts = []
    for sample in differences:
        sums, counts = sample.totals()
        parts.append(sums / counts.sum() / len(differences))
    shares = np.concatenate(parts)
    result = np.ones(shares.shape[1])
    for measure, column in enumerate(shares.T):
        # Conversations without a difference change nothing, whatever their sign.
        moved = column[column != 0]
        # With one conversation both signs give an equally large sum.
        if len(moved) < 2:
            continue
        test = stats.permutation_test(
            (moved / np.abs(moved).max(),),
            _total,
            permutation_type="samples",
            vectorized=True,
            n_resamples=resamples,
            batch=_TESTS_AT_ONCE,
            rng=np.random.default_rng(seed),
        )
        result[measure] = test.pvalue
    return result


def _total(values: Numbers, axis: int = -1) -> Numbers:
    # Rounded: the same terms in another order must give the same sum.
    return np.asarray(np.round(np.sum(values, axis=axis), _DIGITS))
