"""Verification of an answer sentence by sentence: what each one claims must be borne out by the evidence.

A sentence may say in other words what a passage says, and join two sentences of it. What must not differ are its numbers, its
names and a "not": each must stand in the evidence, and stand there beside what the sentence says of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langgraph_convcoa.verification.facts import Facts, facts_of, names_like, same_name
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
"""Words on each side of a number or a name that may say what is said of it: those of its clause."""
NAME_WEIGHTS = {"bias": -0.31, "elsewhere": -2.25, "known": 1.37, "near": 5.35, "rival": -4.38, "titled": -0.14}
"""Weights of what tells whether a name stands in the evidence for what the claim says of it (`_Table.placed`)."""
NUMBER_WEIGHTS = {"bias": -1.57, "elsewhere": -2.52, "known": 1.86, "near": 7.14, "rival": -4.63, "titled": 4.63}
"""The same for a number."""
PLACED = (0.2, 0.05)
"""Probability above which a name, or a number, stands for what is said of it."""
BROKEN = 0.25
"""What is left of the score of a sentence with a number, a name or a "not" that the evidence does not hold so."""
LIFT = (0.55, 0.75)
"""Similarity of meaning that begins to lift a paraphrase, and the one that lifts it above the threshold."""
_MOST_KNOWN = 4_000
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
        key = (statement.claim, context | before)
        support = prepared.known.get(key)
        if support is None:
            if len(prepared.known) >= _MOST_KNOWN:
                prepared.known.clear()
            support = prepared.known[key] = _support_of(facts, prepared, context | before)
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


def _support_of(facts: Facts, references: References, context: Set[str]) -> _Support:
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
    broken = table.broken(evidence, here, context)
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
        names = frozenset().union(*(s.names for s in evidence)) - frozenset().union(*(s.common for s in evidence))
        rows = [fact.is_number or fact.is_name or fact.form in facts.openers & names for fact in facts.facts]
        strict = np.array(rows, dtype=bool)
        weights = np.where(strict, STRICT_WEIGHT, 1.0)
        wanted = [_variants(fact.form, facts) if name else {fact.form} for fact, name in zip(facts.facts, rows, strict=True)]
        within = np.array([[not forms.isdisjoint(segment.forms) for segment in evidence] for forms in wanted], dtype=float)
        for n, segment in enumerate(evidence):
            for short, _ in segment.initials:
                within[[name and fact.form == short for fact, name in zip(facts.facts, rows, strict=True)], n] = 1.0
        titled = np.zeros_like(within)
        for owner in set(owners.tolist()):
            if title := references.references[owner].about:
                titled[:, owners == owner] = np.array([[same_name(fact.form, title)] for fact in facts.facts])
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

    def broken(self, evidence: Sequence[Facts], here: Sequence[int], context: Set[str]) -> str:
        """Why a number, a name or a "not" of the claim is not supported by m sentences of evidence; "" where all are."""
        facts = self.facts.facts
        n = 0
        while n < len(facts):
            end = n + 1
            if self.strict[n]:
                while end < len(facts) and facts[end].joined:
                    end += 1
                for fact, held in zip(facts[n:end], self.held[n:end], strict=True):
                    if not held.any():
                        return f"“{fact.word}” is not in the evidence"
                weights, least = (NUMBER_WEIGHTS, PLACED[1]) if facts[n].is_number else (NAME_WEIGHTS, PLACED[0])
                found = self.placed(n, end, evidence, here, context)
                # The subject of a whole reference need not be named again beside what is said of it.
                topic = found["titled"] and not facts[n].is_number
                if not topic and 1 / (1 + math.exp(-sum(weights[name] * value for name, value in found.items()))) <= least:
                    return f"“{' '.join(fact.word for fact in facts[n:end])}” stands elsewhere in the evidence"
            n = end
        return self._turned(evidence)

    def placed(
        self, first: int, end: int, evidence: Sequence[Facts], here: Sequence[int], context: Set[str]
    ) -> dict[str, float]:
        """What tells whether the items [first:end] stand in the evidence for what the claim says of them.

        `near`: how near they stand to the claim's items around them, where they stand nearest; `rival`: how near another
        number or name stands to these, which the claim does not hold; `elsewhere`: what another segment holds more of these
        items than those with the number or the name; `known`: question or sentence before hold it; `titled`: the title of the
        reference.
        """
        facts = self.facts.facts
        around = self._around(first, end)
        holders = np.flatnonzero(self.within[first:end].min(axis=0)).tolist()
        shares = self.held[around].mean(axis=0) if around else np.ones(len(evidence))
        beside = max((float(shares[n]) for n in holders), default=0.0)
        best = int(shares.argmax())
        wanted = [facts[n].form for n in around]
        number = facts[first].is_number
        rivals = [
            n
            for n, fact in enumerate(evidence[best].facts)
            if (fact.is_number if number else fact.is_name) and fact.form not in self.facts.forms
        ]
        forms = {fact.form for fact in facts[first:end]}
        own = self.owners == self.owners[here[0]]
        return {
            "bias": 1.0,
            "elsewhere": float(shares[best]) - beside,
            "known": float(forms <= context),
            "near": max((_nearness(evidence[n], wanted, _places(evidence[n], forms)) for n in holders), default=0.0),
            "rival": max((_nearness(evidence[best], wanted, [n]) for n in rivals), default=0.0),
            "titled": float(self.titled[first:end][:, own].max(axis=1).min()),
        }

    def _around(self, first: int, end: int) -> list[int]:
        """The items beside [first:end]: those of its clause, at least a few, and of these the nearest."""
        facts = self.facts.facts
        every = [n for n in range(max(0, first - WINDOW), min(len(facts), end + WINDOW)) if not first <= n < end]
        same = [n for n in every if facts[n].clause == facts[first].clause]
        # What stands before is more often what it is said of.
        others = sorted(set(every) - set(same), key=lambda n: first - n if n < first else WINDOW + n - end)
        return [*same, *others[: max(_LEAST_AROUND - len(same), 0)]]

    def _turned(self, evidence: Sequence[Facts]) -> str:
        """Why a "not" of the claim, or of the evidence, is not in the other."""
        negated, forms = self.facts.negated, self.facts.forms
        if self.facts.negative:
            if any(segment.negative and 3 * len(segment.negated & negated) >= len(negated) for segment in evidence):
                return ""
            order = np.argsort(-self.shares, kind="stable")[:LIFT_SEGMENTS].tolist()
            closest = [evidence[n] for n in order]
            plain = [s for s in closest if not s.negative and not s.softly]
            if len(plain) == len(closest) or any(len(negated & s.forms) >= _TURNED * len(negated) for s in plain):
                return "the evidence does not deny it"
        elif not self.facts.softly:
            closest = [
                evidence[n] for n in np.flatnonzero(self.shares >= max(self.shares.max() - _LEAST_GAIN, _LEAST_SHARE)).tolist()
            ]
            if closest and all(s.negated and len(s.negated & forms) > _TURNED * len(s.negated) for s in closest):
                return "the evidence denies it"
        return ""


_STRETCH = 5
_LEAST_GAIN = 0.05
_LEAST_SHARE = 0.4
_TURNED = 0.6
_DECAY = 4.0
_LEAST_AROUND = 3


def _places(segment: Facts, forms: Set[str]) -> list[int]:
    return [n for n, fact in enumerate(segment.facts) if fact.form in forms]


def _nearness(segment: Facts, wanted: Sequence[str], places: Sequence[int]) -> float:
    """How near items of a segment stand to the nearest of these places, in [0, 1]; those that it lacks count 0."""
    if not wanted or not places:
        return 0.0
    near: dict[str, float] = {}
    for n, fact in enumerate(segment.facts):
        if fact.form in wanted:
            distance = min(abs(n - place) for place in places)
            near[fact.form] = max(near.get(fact.form, 0.0), 1 / (1 + max(distance - 1, 0) / _DECAY))
    return sum(near.get(form, 0.0) for form in wanted) / len(wanted)


def _variants(form: str, claim: Facts) -> Set[str]:
    """A number or a name of a claim and the forms that may stand for it."""
    if form[0].isdigit():
        # "Season 9" is the ninth season.
        return {form, form[:-2] if form.endswith("th") else f"{form}th"}
    return names_like(form).union(short for short, forms in claim.initials if form in forms)


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
