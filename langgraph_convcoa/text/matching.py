"""A printed answer compared with the answers that count as right: exact match, cover-EM and F1.

As in the evaluation scripts of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), which those of TopiOCQA, QReCC, CoQA and QuAC
share: both texts are normalised, and the best of the references counts. What this library adds to an answer, citation marks
and the … of shortened quotes, is left out first.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_MARK = re.compile(r"(?<!\s)\s*\[\d+\]")
_PUNCTUATION = str.maketrans("", "", string.punctuation + "…")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_POLAR = ("yes", "no")


def normalise_answer(text: str) -> str:
    """SQuAD's normalisation: lower case, no punctuation (nor …), no articles, single spaces.

    Example:
        >>> normalise_answer("The Duke, of  York.")
        'duke of york'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def strip_citations(text: str) -> str:
    """A printed answer without its citation marks.

    Example:
        >>> strip_citations("It was 1982 [1]. Later [2][3].")
        'It was 1982. Later.'
    """
    return _MARK.sub("", text)


def is_cited(text: str) -> bool:
    """Whether a printed answer has a citation mark.

    Example:
        >>> is_cited("It was 1982 [1]."), is_cited("I found nothing.")
        (True, False)
    """
    return _MARK.search(text) is not None


def covers(answer: str, gold: str) -> bool:
    """Whether the gold answer occurs in a printed answer, both normalised; a gold answer of nothing else never does.

    Letters are compared and not words, as the papers' cover-EM does (Rosset et al. 2020): "194" occurs in "1945".

    Example:
        >>> covers("… by the U.S. Navy in 1945 [1]", "US Navy"), covers("In 1945 [1].", "194")
        (True, True)
    """
    wanted = normalise_answer(gold)
    return bool(wanted) and wanted in normalise_answer(strip_citations(answer))


def match_answer(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Exact match, cover-EM and F1 of an answer, each in [0, 1].

    Args:
        answer: As printed, with citation marks or without.
        references: The answers that count as right; blank ones are passed over.

    Returns:
        "em", "cover_em" and "f1", each the best over the references; a bare yes or no must stand as a word to be covered, for
        "no" occurs in "know". Nothing where no reference is known.

    Example:
        >>> match_answer("It was Ada Lovelace [1].", ["Ada Lovelace", "Lady Lovelace"])
        {'em': 0.0, 'cover_em': 1.0, 'f1': 0.6666666666666666}
    """
    golds = [normalise_answer(reference) for reference in known_references(references)]
    if not golds:
        return {}
    plain = normalise_answer(strip_citations(answer))
    words = plain.split()
    return {
        "em": float(plain in golds),
        "cover_em": float(any(_covers(plain, gold) for gold in golds)),
        "f1": max(_f1(words, gold.split()) for gold in golds),
    }


def known_references(references: Sequence[str]) -> list[str]:
    """The references that say something, each once.

    Example:
        >>> known_references(["1982", " ", "1982"])
        ['1982']
    """
    return list(dict.fromkeys(reference for reference in references if reference.strip()))


def _covers(plain: str, gold: str) -> bool:
    return bool(gold) and gold in (plain.split() if gold in _POLAR else plain)


def _f1(answer: list[str], reference: list[str]) -> float:
    """F1 of the words, each as often as it stands there; where one has none, 1 if neither has any (SQuAD 2.0)."""
    if not answer or not reference:
        return float(answer == reference)
    shared = (Counter(answer) & Counter(reference)).total()
    # 2PR / (P + R) of P = shared / n and R = shared / m.
    return 2 * shared / (len(answer) + len(reference))
