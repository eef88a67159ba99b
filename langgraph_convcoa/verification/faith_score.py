"""The faith score of a candidate (Pan et al. 2024a, section 2.2.2, figure 5), and Conv-MRFS (Pan et al. 2024b, section 3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.text.words import content_tokens, words

Items = Literal["content", "tokens"]  # The items that are compared: stemmed content words, or every word.
Weights = tuple[float, float, float]
"""alpha, beta, gamma: the weights of precision, recall and average word length; at least 0, summing to 1."""

PAPER_WEIGHTS: Weights = (0.4, 0.4, 0.2)
PAPER_THRESHOLD = 0.75  # T of the word score (Pan et al. 2024b, section 4, table 7). A verifier has a T of its own.
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
    alpha, beta, gamma = _check_weights(weights)
    (candidate_items, lengths), (reference_items, _) = _items(candidate, items), _items(reference, items)
    if not candidate_items or not reference_items:
        return FaithScore(0.0, 0.0, 0.0, 0.0)
    if items == "tokens":
        common = len(set(candidate_items) & set(reference_items))
    else:
        common = (Counter(candidate_items) & Counter(reference_items)).total()
    precision, recall = common / len(candidate_items), common / len(reference_items)
    length = lengths / len(candidate_items)
    score = alpha * precision + beta * recall + gamma * min(length / LETTERS_OF_A_LONG_WORD, 1.0)
    return FaithScore(precision, recall, length, min(score, 1.0))


@dataclass(frozen=True)
class ConvMRFS:
    """The best faith score of a candidate.

    Attributes:
        score: In [0, 1].
        faithful: Whether the score is above the threshold.
        reference: Index of the best reference, or None. Answers of the history are numbered after the references.
        quote: The text of that reference.
        threshold: T.
    """

    score: float
    faithful: bool
    reference: int | None
    quote: str
    threshold: float


def conv_mrfs(
    candidate: str,
    references: Sequence[str | Document],
    *,
    history: Sequence[tuple[str, str]] = (),
    weights: tuple[float, float, float] = PAPER_WEIGHTS,
    threshold: float = PAPER_THRESHOLD,
    items: Items = "tokens",
) -> ConvMRFS:
    """Score a candidate against every piece of evidence and every earlier answer; the best score counts.

    It compares words, as the papers do. A graph verifies with a model that reads the sentence (`build_graph(verifier=...)`).

    Args:
        candidate: A guess or an answer.
        references: Evidence, as texts or documents.
        history: Earlier pairs of question and answer; the answers count as references.
        weights: alpha, beta, gamma of `faith_score`.
        threshold: T of the paper by default.
        items: "tokens" compares every word, as the paper does; "content" stemmed content words.

    Raises:
        InputError: The weights are not at least 0 with sum 1, or `items` is unknown.

    Example:
        >>> evidence = ["Hopfield described the network in 1982.", "Kohonen wrote about associative memory in 1977."]
        >>> found = conv_mrfs("Hopfield described the network", evidence)
        >>> found.reference, found.faithful, round(found.score, 2)
        (0, True, 0.8)
    """
    _check_weights(weights)
    texts = [clean(one if isinstance(one, str) else one.page_content) for one in references]
    texts += [clean(answer) for _, answer in history]
    best, score = None, 0.0
    for n, text in enumerate(texts):
        found = faith_score(clean(candidate), text, weights=weights, items=items).score
        if found > score:
            best, score = n, found
    return ConvMRFS(score, score > threshold, best, "" if best is None else texts[best], threshold)


def _check_weights(weights: tuple[float, float, float]) -> Weights:
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
