"""Measures of a printed answer against the answers that count as right.

Exact match, cover-EM and F1 are those of `text.matching`. ROUGE-L is rouge-score's and BLEU sacrebleu's (extra `evaluate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.matching import known_references, match_answer, strip_citations

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

MEASURES = ("em", "cover_em", "f1", "rouge_l", "bleu")
"""What `answer_metrics` gives."""

_STEMS_KEPT = 50_000
_MISSING = 'ROUGE-L and BLEU need rouge-score and sacrebleu: pip install "langgraph-convcoa[evaluate]"'


def answer_metrics(answer: str, references: Sequence[str]) -> dict[str, float]:
    """All measures of an answer, each in [0, 1].

    Args:
        answer: As printed, with citation marks or without.
        references: The answers that count as right; blank ones are passed over.

    Returns:
        "em", "cover_em", "f1" and "rouge_l" (F of the longest common subsequence, words stemmed), each the best over the
        references; a bare yes or no must stand as a word to be covered, for "no" occurs in "know"; "bleu" (of the sentence,
        with effective order) against all references. Nothing where no reference is known.

    Raises:
        InputError: The packages of the extra `evaluate` are not installed.

    Example:
        >>> found = answer_metrics("It was Ada Lovelace [1].", ["Ada Lovelace", "Lady Lovelace"])
        >>> {name: round(value, 2) for name, value in found.items()}
        {'em': 0.0, 'cover_em': 1.0, 'f1': 0.67, 'rouge_l': 0.67, 'bleu': 0.21}
    """
    right = known_references(references)
    if not right:
        return {}
    shown = strip_citations(answer)
    return {
        **match_answer(answer, right),
        "rouge_l": float(_rouge().score_multi(right, shown)["rougeL"].fmeasure),
        "bleu": _bleu().sentence_score(shown, right).score / 100,
    }


def corpus_bleu(answers: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU of all answers together, in [0, 1] (Papineni et al. 2002); answers without a reference are left out.

    Args:
        answers: As printed.
        references: Those of each answer, one or more.

    Raises:
        InputError: No answer has a reference, or the extra `evaluate` is not installed.

    Example:
        >>> corpus_bleu(["the cat sat on the mat [1]"], [["the cat sat on the mat"]])
        1.0
    """
    known = [known_references(right) for right in references]
    pairs = [(strip_citations(answer), right) for answer, right in zip(answers, known, strict=True) if right]
    if not pairs:
        raise InputError("corpus_bleu got no answer with a reference, so there is nothing to compare with.")
    # sacrebleu takes the n-th references of all answers together, None where an answer has fewer.
    streams = list(zip_longest(*(right for _, right in pairs)))
    try:
        from sacrebleu import corpus_bleu as bleu
    except ImportError as error:
        raise InputError(_MISSING) from error
    return min(1.0, float(bleu([shown for shown, _ in pairs], streams).score) / 100)


class _Tokens:
    """rouge-score's tokens with Porter's stems, each word stemmed once: most of the time of a run goes there."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer
        from rouge_score.tokenize import tokenize

        self.stem = lru_cache(maxsize=_STEMS_KEPT)(PorterStemmer().stem)
        self._tokenize = tokenize

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text, with this object as the stemmer."""
        return list(self._tokenize(text, self))


@lru_cache(maxsize=1)
def _rouge() -> RougeScorer:
    try:
        from rouge_score.rouge_scorer import RougeScorer

        return RougeScorer(["rougeL"], tokenizer=_Tokens())
    except ImportError as error:
        raise InputError(_MISSING) from error


@lru_cache(maxsize=1)
def _bleu() -> BLEU:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise InputError(_MISSING) from error
    # Short answers have no 4-grams; without effective order all of them would get 0.
    return BLEU(effective_order=True)
