"""Measures of an answer against the answers that count as right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from langgraph_convcoa.reasoning.extractive.coverage import NOTHING
from langgraph_convcoa.text.citations import without_marks
from langgraph_convcoa.text.matching import known_references, match_answer

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

MEASURES = ("cover_em", "em", "f1", "rouge_l")
"""The keys of `answer_metrics`."""


def answer_metrics(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Measures of a printed answer, each in [0, 1] and the best over the references; blank references are ignored.

    "em", "cover_em" and "f1" are those of `match_answer`. "rouge_l" (F of the longest common subsequence, words stemmed) is
    there if rouge-score is installed (extra `evaluate`). All are 0 for a refusal. Empty if no reference is known.

    Example:
        >>> found = answer_metrics("It was Ada Lovelace [1].", ["Ada Lovelace", "Lady Lovelace"])
        >>> found["em"], found["cover_em"], round(found["f1"], 2)
        (0.0, 1.0, 0.67)
    """
    right = known_references(references)
    found = match_answer(answer, right)
    if found and find_spec("rouge_score") is not None:
        found["rouge_l"] = float(_rouge().score_multi(right, without_marks(answer))["rougeL"].fmeasure)
    return dict.fromkeys(found, 0.0) if refuses(answer) else found


def refuses(answer: str) -> bool:
    """Whether an answer says plainly that nothing was found; the nearest passage may follow.

    Example:
        >>> refuses("I found nothing about this in the documents. The nearest passage is “Oslo” [1]."), refuses("Oslo [1].")
        (True, False)
    """
    return answer.startswith(NOTHING)


@lru_cache(maxsize=1)
def _rouge() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)
