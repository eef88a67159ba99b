"""Comparison of an answer with the right answers: exact match, cover-EM and F1.

As in the evaluation scripts of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), both texts are normalised, and the best
reference counts. Citation marks and the … of shortened quotes are removed first.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from langgraph_convcoa.text.citation_marks import without_marks

_PUNCTUATION = str.maketrans("", "", string.punctuation + "…")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_POLAR = ("yes", "no")


def normalise_answer(text: str) -> str:
    """SQuAD's normalisation: lower case, no punctuation (nor …), no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def match_answer(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Exact match, cover-EM and F1 of an answer, each in [0, 1].

    Returns "em", "cover_em" and "f1", each the best over the references; {} without references. Cover-EM compares letters, not
    words (Rosset et al. 2020): "1945" covers "194". Only the references "yes" and "no" must equal a whole word.

    Example:
        >>> match_answer("It was Ada Lovelace [1].", ["Ada Lovelace", "Lady Lovelace"])
        {'em': 0.0, 'cover_em': 1.0, 'f1': 0.6666666666666666}
    """
    golds = [normalise_answer(reference) for reference in known_references(references)]
    if not golds:
        return {}
    plain = normalise_answer(without_marks(answer))
    words = plain.split()
    return {
        "em": float(plain in golds),
        "cover_em": float(any(gold and gold in (words if gold in _POLAR else plain) for gold in golds)),
        "f1": max(_f1(words, gold.split()) for gold in golds),
    }


def known_references(references: Sequence[str]) -> list[str]:
    """The references that are not blank, each once."""
    return list(dict.fromkeys(reference for reference in references if reference.strip()))


def _f1(answer: list[str], reference: list[str]) -> float:
    """F1 of the words, repeats included. If either text has no words: 1 if both have none, else 0 (SQuAD 2.0)."""
    if not answer or not reference:
        return float(answer == reference)
    shared = (Counter(answer) & Counter(reference)).total()
    # 2PR / (P + R) with P = shared / n and R = shared / m.
    return 2 * shared / (len(answer) + len(reference))
