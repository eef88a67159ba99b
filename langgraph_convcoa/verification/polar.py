"""A bare yes or no: the claim is the question itself, put as a statement or its denial."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from langgraph_convcoa.verification.references import References, Segment, content_items, segment_of
from langgraph_convcoa.verification.support import CONTRADICTION_SHARE

_POLAR = re.compile(r"\s*(yes|no)[\s.,!]*", re.IGNORECASE)
_OPEN_QUESTION = re.compile(r"\W*(?:who|whom|whose|what|when|where|which|why|how)\b", re.IGNORECASE)


def polar_claim(candidate: str, question: str) -> Segment | None:
    """What a bare yes or no claims; None for any other candidate, or where the question is no yes-no question.

    Example:
        >>> claim = polar_claim("No.", "Was the engine finished?")
        >>> claim.text, [item.form for item in claim.items], claim.negated
        ('No.', ['engin', 'finish'], True)
    """
    said = _POLAR.fullmatch(candidate)
    if said is None or _OPEN_QUESTION.match(question):
        return None
    items = content_items(question)
    if not items:
        return None
    asked = segment_of(question, 0, items)
    claim = segment_of(candidate.strip(), said.start(1), items)
    return replace(claim, negated=asked.negated != (said[1].lower() == "no"), asserts=True)


def polar_parts(claim: Segment, references: References) -> NDArray[np.float64]:
    """The same score in place of each part, (m, 3): the share of the question in a segment, squared: a yes claims it all.

    The sentence before and the title may name what the segment speaks of. A number or a name that no reference holds, or a
    segment that says the opposite, lowers it.
    """
    found = np.zeros(len(references.segments))
    known = all(form in references.where for form in (i.form for i in claim.items if i.is_number or i.is_name))
    n = 0
    for reference in references.references:
        before: frozenset[str] = frozenset()
        for segment in reference.segments:
            if not claim.forms.isdisjoint(segment.forms):
                held = segment.forms | before | reference.about
                share = len(claim.forms & held) / len(claim.forms)
                agrees = known and claim.negated == segment.negated
                found[n] = share**2 * (1.0 if agrees else CONTRADICTION_SHARE)
            before = segment.forms
            n += 1
    return np.repeat(found[:, None], 3, axis=1)
