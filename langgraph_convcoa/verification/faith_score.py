"""The faith score of a candidate against one reference (Pan et al. 2024a, section 2.2.2, equation 3 and figure 5)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.words import content_tokens, words

Items = Literal["content", "tokens"]
"""The items that are compared: stemmed content words, or every word."""

Weights = tuple[float, float, float]
"""alpha, beta, gamma: the weights of precision, recall and average word length; at least 0, summing to 1."""

PAPER_WEIGHTS: Weights = (0.4, 0.4, 0.2)
PAPER_THRESHOLD = 0.75
"""T of Pan et al. 2024b, section 4 and table 7."""
LETTERS_OF_A_LONG_WORD = 10.0
"""Average word length enters the score as letters / 10, at most 1. Unscaled it would outweigh precision and recall."""


@dataclass(frozen=True)
class FaithScore:
    """The parts of S = alpha * P + beta * Rcl + gamma * AWL.

    Attributes:
        precision: Share of the candidate's items that the reference holds, in [0, 1].
        recall: Share of the reference's items that the candidate holds, in [0, 1].
        average_word_length: Letters per item of the candidate, not scaled.
        score: The weighted sum with the word length scaled to [0, 1], in [0, 1].
    """

    precision: float
    recall: float
    average_word_length: float
    score: float


def faith_score(
    candidate: str, reference: str, *, weights: tuple[float, float, float] = PAPER_WEIGHTS, items: Items = "content"
) -> FaithScore:
    """Score a candidate against one reference text (Pan et al. 2024a, section 2.2.2).

    Content words are counted as often as they occur in both (clipped counts, as in ROUGE), so that a text has precision 1
    against itself. Tokens are counted as in the paper's figure 5: distinct shared tokens over all tokens. This lowers the
    score of a longer text.

    Args:
        candidate: The text to be verified.
        reference: The text that the candidate should be faithful to.
        weights: alpha, beta and gamma.
        items: "content" compares stemmed words without function words; "tokens" compares every word, as the paper does.

    Raises:
        InputError: The weights are not three numbers of at least 0 that sum to 1, or `items` is unknown.

    Example:
        >>> reference = "david is a good person, and he got an apple, a banana, and oranges."
        >>> s = faith_score("david had an apple and a banana", reference, items="tokens")
        >>> (round(s.precision, 3), round(s.recall, 3), round(s.average_word_length, 2), round(s.score, 3))
        (0.857, 0.429, 3.57, 0.586)
    """
    alpha, beta, gamma = check_weights(weights)
    (candidate_items, lengths), (reference_items, _) = _items(candidate, items), _items(reference, items)
    if not candidate_items or not reference_items:
        return FaithScore(0.0, 0.0, 0.0, 0.0)
    if items == "tokens":
        common = len(set(candidate_items) & set(reference_items))
    else:
        common = (Counter(candidate_items) & Counter(reference_items)).total()
    precision, recall = common / len(candidate_items), common / len(reference_items)
    length = lengths / len(candidate_items)
    score = alpha * precision + beta * recall + gamma * scaled_word_length(length)
    return FaithScore(precision, recall, length, min(score, 1.0))


def scaled_word_length(letters: float) -> float:
    """Average word length as it enters a score: in [0, 1]."""
    return min(letters / LETTERS_OF_A_LONG_WORD, 1.0)


def check_weights(weights: tuple[float, float, float]) -> Weights:
    """Return the weights. Raises InputError if they are not three finite numbers of at least 0 that sum to 1."""
    if len(weights) != 3 or not all(math.isfinite(w) and w >= 0 for w in weights) or abs(sum(weights) - 1) > 1e-6:
        raise InputError(
            f"weights must be three numbers of at least 0 that sum to 1 (alpha, beta, gamma), not {tuple(weights)}"
        )
    return weights


def _items(text: str, items: Items) -> tuple[list[str], int]:
    """The items in order, and their total number of letters."""
    if items == "tokens":
        found = words(text)
        return found, sum(map(len, found))
    if items != "content":
        raise InputError(f'items must be "content" or "tokens", not {items!r}')
    tokens = content_tokens(text)
    if not tokens:
        # A text of function words only ("no", "To be or not to be") is compared by them.
        return _items(text, "tokens")
    return [token.item for token in tokens], sum(len(token.raw) for token in tokens)
