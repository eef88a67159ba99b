"""Conv-MRFS: the best faith score of a candidate over evidence and history (Pan et al. 2024b, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.documents import Document

from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.verification.faith_score import PAPER_THRESHOLD, PAPER_WEIGHTS, Items, check_weights, faith_score


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
    check_weights(weights)
    texts = [clean(one if isinstance(one, str) else one.page_content) for one in references]
    texts += [clean(answer) for _, answer in history]
    best, score = None, 0.0
    for n, text in enumerate(texts):
        found = faith_score(clean(candidate), text, weights=weights, items=items).score
        if found > score:
            best, score = n, found
    return ConvMRFS(score, score > threshold, best, "" if best is None else texts[best], threshold)
