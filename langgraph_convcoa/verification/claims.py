"""Verification of an answer sentence by sentence: what each one claims must be borne out by the evidence.

A sentence may say in other words what a passage says, and join two sentences of it. What must not differ are its numbers, its
names and a "not": each must stand in the evidence, and stand there beside what the sentence says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langgraph_convcoa.verification.facts import Facts, facts_of, same_name
from langgraph_convcoa.verification.references import References
from langgraph_convcoa.verification.statements import statements
from langgraph_convcoa.verification.support import SentenceSupport, Similarity

Array = NDArray[np.float64]

CLAIM_THRESHOLD = 0.5
"""T for the sentences of an answer."""
STRICT_WEIGHT = 2.0
"""A number or a name counts as much as this many other words."""
MOST_REFERENCES = 5
"""References that are compared closely: those that share most with the sentence."""
MOST_SEGMENTS = 3
"""Segments of one reference that together may support a sentence."""
WINDOW = 4
"""Words on each side of a number or a name that say what is said of it."""
BESIDE = 0.25
"""Share of these words that the segment with the number or the name must hold."""
BROKEN = 0.25
"""What is left of the score of a sentence with a number, a name or a "not" that the evidence does not hold so."""
LIFT = (0.55, 0.75)
"""Similarity of meaning that begins to lift a paraphrase, and the one that lifts it above the threshold."""
LIFT_SEGMENTS = 4
"""Segments whose similarity is asked for, those closest in words."""


@dataclass(frozen=True)
class SentenceVerdict(SentenceSupport):
    """The verdict on one sentence of an answer, which is the answer's [start:end].

    `claims`: whether it says anything that evidence could bear; what does not is never `supported`. `reason`: why it is not
    supported, "" otherwise; `also`: further references that hold a part of it.
    """

    supported: bool
    claims: bool
    reason: str = ""
    also: tuple[int, ...] = ()


def verify_sentences(
    text: str,
    references: Sequence[str | Document] | References,
    *,
    question: str = "",
    similarity: Similarity | None = None,
    threshold: float | None = None,
) -> list[SentenceVerdict]:
    """Verify each sentence of an answer; every character that is no white space belongs to one.

    Citation marks are not compared. Greetings, offers, questions, headings and statements that the evidence is silent claim
    nothing (`Statement`).

    Args:
        text: An answer.
        references: Evidence, or `References` prepared once for several texts, history included.
        question: What it answers: names that stand there, or in the sentence before, need not be repeated by the evidence
            beside what is said of them.
        similarity: An encoder's similarities of texts, asked for sentences alone that fail by their words and by nothing else,
            and for the few segments closest in words. It lifts a paraphrase, never a wrong number, name or "not".
        threshold: T; a score above it is supported. `CLAIM_THRESHOLD` by default.

    Example:
        >>> evidence = ["The Tay Bridge was opened in 1878. It collapsed in a storm on 28 December 1879."]
        >>> told = "Hello! The bridge opened in 1878 [1]. It collapsed in 1878. The passages do not say who built it."
        >>> [(s.claims, s.supported, s.reason) for s in verify_sentences(told, evidence)]  # doctest: +NORMALIZE_WHITESPACE
        [(False, False, ''), (True, True, ''), (True, False, '“1878” stands elsewhere in the evidence'),
         (False, False, '')]
    """
    prepared = References.of(references)
    least = CLAIM_THRESHOLD if threshold is None else threshold
    found: list[SentenceVerdict] = []
    open_claims: list[tuple[int, _Support]] = []
    context = facts_of(question).forms if question.strip() else frozenset()
    before: frozenset[str] = frozenset()
    for statement in statements(text):
        place = (statement.text, statement.start, statement.end)
        if not statement.claim:
            found.append(SentenceVerdict(*place, 0.0, None, "", 0.0, False, False))
            continue
        facts = facts_of(statement.claim)
        support = _support_of(facts, prepared, context | before)
        found.append(support.verdict(*place, prepared, least))
        if similarity is not None and not found[-1].supported and not support.broken and support.nearest:
            open_claims.append((len(found) - 1, support))
        before = facts.forms
    if similarity is not None and open_claims:
        _lift(found, open_claims, prepared, similarity, least)
    return found


def weakest(sentences: Sequence[SentenceVerdict]) -> SentenceVerdict | None:
    """The claim with the lowest score, which is the score of the whole text; None where nothing is claimed."""
    return min((s for s in sentences if s.claims), key=lambda s: s.score, default=None)


@dataclass(frozen=True)
class _Support:
    """What supports a claim: its `score`, the segments, best first, why a number, a name or a "not" is not supported
    (`broken`), the segments closest in words (`nearest`).
    """

    facts: Facts
    score: float
    segments: tuple[int, ...]
    broken: str
    nearest: tuple[int, ...]

    def verdict(self, text: str, start: int, end: int, references: References, threshold: float) -> SentenceVerdict:
        weight = sum(STRICT_WEIGHT if fact.strict else 1.0 for fact in self.facts.facts)
        supported = self.score > threshold
        reason = "" if supported else self.broken or "too little of it is in the evidence"
        owners = list(dict.fromkeys(references.owners[n] for n in self.segments))
        best = self.segments[0] if self.segments else None
        return SentenceVerdict(
            text=text,
            start=start,
            end=end,
            score=self.score,
            reference=None if best is None else references.owners[best],
            quote="" if best is None else references.segments[best].text,
            weight=weight,
            supported=supported,
            claims=True,
            reason=reason,
            also=tuple(owners[1:]),
        )


def _support_of(facts: Facts, references: References, context: frozenset[str]) -> _Support:
    """Compare a claim with the references that share most with it."""
    near = _near_references(facts, references)
    chosen = [n for owner in near for n in range(*references.span(owner))]
    if not chosen:
        return _Support(facts, 0.0, (), "", ())
    evidence = [facts_of(references.segments[n].text) for n in chosen]
    table = _Table.of(facts, evidence, np.array([references.owners[n] for n in chosen]), references)
    here, together = table.best_segments()
    if not here:
        return _Support(facts, 0.0, (), "", ())
    support = table.support(here, together)
    closest = [int(n) for n in np.argsort(-table.shares, kind="stable")[:LIFT_SEGMENTS] if table.shares[n] > 0]
    broken = table.broken([evidence[n] for n in dict.fromkeys([*here, *closest])], here, context, references)
    nearest = tuple(chosen[n] for n in closest)
    score = support * (BROKEN if broken else 1.0)
    return _Support(facts, score, tuple(chosen[n] for n in here), broken, nearest)


def _near_references(facts: Facts, references: References) -> list[int]:
    shared: dict[int, float] = {}
    for fact in facts.facts:
        for owner in {references.owners[n] for n in references.where.get(fact.form, ())}:
            shared[owner] = shared.get(owner, 0.0) + (STRICT_WEIGHT if fact.strict else 1.0)
    return sorted(shared, key=lambda owner: (-shared[owner], owner))[:MOST_REFERENCES]


@dataclass(frozen=True, eq=False)
class _Table:
    """A claim of n items against m segments.

    `weights`: of the items, (n,); `strict`: which of them are numbers or names; `within`: which item each segment holds,
    `titled`: the title of its reference, `held`: one of both, (n, m); `owners`: the reference of each segment, (m,); `shares`:
    the weight of what each segment holds, of 1, (m,).
    """

    facts: Facts
    weights: Array
    strict: NDArray[np.bool_]
    held: Array
    within: Array
    titled: Array
    owners: NDArray[np.int64]
    shares: Array

    @classmethod
    def of(cls, facts: Facts, evidence: Sequence[Facts], owners: NDArray[np.int64], references: References) -> _Table:
        names = frozenset().union(*(segment.names for segment in evidence))
        rows = [fact.is_number or fact.is_name or fact.form in facts.openers & names for fact in facts.facts]
        strict = np.array(rows, dtype=bool)
        weights = np.where(strict, STRICT_WEIGHT, 1.0)
        initials = [frozenset(short for short, _ in segment.initials) for segment in evidence]
        within = np.array([[_holds(fact.form, name, facts, s, i) for s, i in zip(evidence, initials, strict=True)]
                           for fact, name in zip(facts.facts, rows, strict=True)], dtype=float)  # fmt: skip
        titles = {owner: references.references[owner].about for owner in owners.tolist()}
        titled = np.array(
            [[same_name(fact.form, titles[owner]) for owner in owners.tolist()] for fact in facts.facts], dtype=float
        )
        held = np.maximum(within, titled)
        return cls(facts, weights / weights.sum(), strict, held, within, titled, owners, weights @ held / weights.sum())

    def best_segments(self) -> tuple[list[int], Array]:
        """The segments of one reference that together hold most of the claim, best first, and which items they hold, (n,)."""
        best: tuple[float, list[int], Array] = (0.0, [], np.zeros(len(self.weights)))
        for owner in dict.fromkeys(self.owners.tolist()):
            own = np.flatnonzero(self.owners == owner)
            first = int(own[self.shares[own].argmax()])
            taken, held = [first], self.held[:, first].copy()
            while len(taken) < MOST_SEGMENTS:
                gains = self.weights @ np.clip(self.held[:, own] - held[:, None], 0.0, 1.0)
                if gains.max() < _LEAST_GAIN:
                    break
                taken.append(int(own[gains.argmax()]))
                held = np.maximum(held, self.held[:, taken[-1]])
            value = float(self.weights @ held + self.shares[first] / 2)
            if self.shares[first] > 0 and value > best[0]:
                best = (value, taken, held)
        return best[1], best[2]

    def support(self, here: Sequence[int], together: Array) -> float:
        """How much of the claim is supported, in [0, 1], numbers, names and negation aside.

        The mean of four shares of its items: in the best segment, in the best segments of that reference, anywhere, and on
        average over stretches of five neighbouring items those that one segment holds.
        """
        n = len(self.weights)
        size = min(n, _STRETCH)
        stretches = [self.weights[a : a + size] @ self.held[a : a + size] for a in range(n - size + 1)]
        wholes = [self.weights[a : a + size].sum() for a in range(n - size + 1)]
        near = float(np.mean([s.max() / whole for s, whole in zip(stretches, wholes, strict=True)]))
        anywhere = float(self.weights @ self.held.max(axis=1))
        return (float(self.shares[here[0]]) + float(self.weights @ together) + anywhere + near) / 4

    def broken(self, segments: Sequence[Facts], here: Sequence[int], context: frozenset[str], references: References) -> str:
        """Why a number, a name or a "not" of the claim is not supported; "" where all are."""
        for n, fact in enumerate(self.facts.facts):
            if not self.strict[n]:
                continue
            if not self.held[n].any():
                if fact.form not in references.where:
                    return f"“{fact.form}” is not in the evidence"
                return f"“{fact.form}” stands elsewhere in the evidence"
            own = self.owners == self.owners[here[0]]
            if not fact.is_number and (self.titled[n, own].any() or (fact.form in context and self.within[n, own].any())):
                continue
            if self._beside(n) < BESIDE:
                return f"“{fact.form}” stands elsewhere in the evidence"
        if self.facts.negative and not any(s.negative or s.softly for s in segments):
            return "the evidence does not deny it"
        if not self.facts.negative and not self.facts.softly:
            for segment in segments[:1]:
                turned = (segment.negated & self.facts.forms) - self.facts.negated
                if segment.negative and len(turned) > _TURNED * max(len(segment.negated), 1):
                    return "the evidence denies it"
        return ""

    def _beside(self, n: int) -> float:
        """Share of the items around the n-th, other than the rest of its name, that a segment with it holds."""
        first = last = n
        if not self.facts.facts[n].is_number:
            while first and self._in_name(first - 1):
                first -= 1
            while last + 1 < len(self.strict) and self._in_name(last + 1):
                last += 1
        window = [j for j in range(max(0, n - WINDOW), min(len(self.strict), n + WINDOW + 1)) if not first <= j <= last]
        holders = np.flatnonzero(self.within[n])
        if not window or not len(holders):
            return 1.0 if not window else 0.0
        return float(self.held[window][:, holders].mean(axis=0).max())

    def _in_name(self, n: int) -> bool:
        return bool(self.strict[n]) and not self.facts.facts[n].is_number


_STRETCH = 5
_LEAST_GAIN = 0.05
_TURNED = 0.6


def _holds(form: str, strict: bool, claim: Facts, segment: Facts, initials: frozenset[str]) -> bool:
    if form in segment.forms:
        return True
    if not strict:
        return False
    if form in initials or same_name(form, segment.forms):
        return True
    return any(form in forms and short in segment.forms for short, forms in claim.initials)


def _lift(
    found: list[SentenceVerdict],
    claims: Sequence[tuple[int, _Support]],
    references: References,
    similarity: Similarity,
    threshold: float,
) -> None:
    """Lift the scores of paraphrases, all of an answer with one call."""
    pairs: list[tuple[int, _Support, list[str]]] = []
    for n, support in claims:
        texts = [references.segments[s].text for s in support.nearest]
        if len(support.segments) > 1:
            texts.append(" ".join(references.segments[s].text for s in sorted(support.segments)))
        pairs.append((n, support, texts))
    every = list(dict.fromkeys(text for _, _, texts in pairs for text in texts))
    rows = similarity([support.facts.text for _, support, _ in pairs], every)
    for row, (n, support, texts) in zip(rows, pairs, strict=True):
        nearness = max(float(row[every.index(text)]) for text in texts)
        low, high = LIFT
        lift = min(max((nearness - low) / (high - low), 0.0), 1.0)
        score = min(support.score + lift * max(threshold - support.score + 0.01, 0.0), 1.0)
        if score > found[n].score:
            supported = score > threshold
            found[n] = replace(found[n], score=score, supported=supported, reason="" if supported else found[n].reason)
