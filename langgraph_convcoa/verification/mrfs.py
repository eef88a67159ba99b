"""Conv-MRFS: the best faith score of a candidate over segments of evidence and history (Pan et al. 2024b, section 3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.text.questions import WH
from langgraph_convcoa.text.words import content_items, content_tokens
from langgraph_convcoa.verification.claims import CLAIM_THRESHOLD, SentenceVerdict, verify_sentences, weakest
from langgraph_convcoa.verification.faith_score import (
    PAPER_THRESHOLD,
    PAPER_WEIGHTS,
    Items,
    Weights,
    check_weights,
    faith_score,
)
from langgraph_convcoa.verification.references import References, Segment, segment_of, segments
from langgraph_convcoa.verification.relevance import Guess, answer_relevance, places_of, relevance_of
from langgraph_convcoa.verification.statements import is_sentence, statements
from langgraph_convcoa.verification.support import (
    CONTRADICTION_SHARE,
    WEIGHTS,
    Array,
    SentenceSupport,
    Similarity,
    claim_parts,
    support_of,
)

Mode = Literal["default", "plain"]

THRESHOLD = 0.56
"""T for statements: best balanced accuracy on one half, split by conversation, of MTRAG's human faithfulness ratings
(unfaithful: below 3). `convcoa evaluate faithfulness JUDGEMENTS` fits it again, and measures it leaving conversations out."""
GUESS_THRESHOLD = 0.61
"""T for guesses to a question: with `RELEVANCE_WEIGHTS` the best balanced accuracy, right answer against another answer of the
same passage. `convcoa evaluate guesses SQUAD2 ABG_COQA QUAC_DEV --fit` fits them again."""
UNFOUND_SHARE = 0.25
"""What is left of a guess with a number or a name that the references do not hold."""
STRAY_SHARE = 0.5
"""What is left of a guess whose number stands in another sentence than what is said of it."""
CLAIM_SHARE = 0.3
"""What the verdict on its numbers, names and negation (`verify_sentences`) counts in the score of a statement's sentence."""
NOTHING_CLAIMED = 0.5
"""The score of a text that claims nothing, such as "The documents do not say": neither faithful nor unfaithful."""
_POLAR = re.compile(r"\A\s*+(yes|no)[\s.,!]*+", re.IGNORECASE)
_KEPT = GUESS_THRESHOLD + 0.01
_OPEN_QUESTION = re.compile(rf"\A\W*+(?:{WH})\b", re.IGNORECASE)


@dataclass(frozen=True)
class ConvMRFS:
    """The verdict on a candidate: its score in [0, 1], and whether that is above the threshold.

    Attributes:
        reference: Index of the best reference (answers of the history count on after the references); None: nothing matches.
        quote: The segment of it that supports the candidate best; in plain mode the whole reference.
        sentences: The support of each sentence of the candidate; one for the whole candidate in plain mode.
        threshold: The threshold that was used.
        relevance: How sure a guess is the answer to its question, in [0, 1]; the score where it is a bare span or has no
            question. A sentence may be true and no answer: this ranks answers, the score judges them.
    """

    score: float
    faithful: bool
    reference: int | None
    quote: str
    sentences: tuple[SentenceSupport, ...]
    threshold: float
    relevance: float = 0.0


@dataclass(frozen=True)
class Parts:
    """What the score of a candidate is made of, before the weights.

    `parts`: for each sentence (`claims`) precision, recall and scaled word length against each of m segments, (m, 3);
    `factor`: what numbers and names that no reference holds leave of the score; `gates`: how far each segment is about the
    question, (m,), None without one; `answers`: where the guess stands in each reference, the segment and the probability that
    it answers the question; `verdicts`: those on the sentences of a statement, without a question one for each claim, None for
    a bare span; `silent`: the text claims nothing.
    """

    claims: tuple[Segment, ...]
    parts: tuple[Array, ...]
    factor: float = 1.0
    gates: Array | None = None
    answers: tuple[tuple[int, float], ...] = ()
    verdicts: tuple[SentenceVerdict | None, ...] = ()
    silent: bool = False

    def score(self, references: References, weights: Weights) -> tuple[float, list[SentenceSupport], float]:
        """The score in [0, 1], the support of each sentence, and the relevance, which is the score but for a sentence with a
        question.
        """
        supports = [support_of(c, p, references, weights) for c, p in zip(self.claims, self.parts, strict=True)]
        if self.silent:
            return NOTHING_CLAIMED, supports, NOTHING_CLAIMED
        if self.gates is None and self.verdicts:
            supports = [
                replace(s, score=(1 - CLAIM_SHARE) * s.score + CLAIM_SHARE * v.score) if v else s
                for s, v in zip(supports, self.verdicts, strict=True)
            ]
        total = sum(s.weight for s in supports)
        score = sum(s.score * s.weight for s in supports) / total if total else 0.0
        if self.gates is None:
            return score, supports, score
        sure = self._relevance(score, weights)
        judged = [verdict for verdict in self.verdicts if verdict]
        least = weakest(judged)
        if not score:
            return score, supports, sure if judged else score
        if least is None:
            gated = [support_of(c, p, references, weights, self.gates) for c, p in zip(self.claims, self.parts, strict=True)]
            return sure, gated, sure
        # A sentence says itself what it is about: what the evidence supports stands, whatever the question.
        if least.supported:
            return _KEPT + (1 - _KEPT) * sure, list(judged), sure
        return GUESS_THRESHOLD * min(least.score / CLAIM_THRESHOLD, 1.0), list(judged), sure

    def _relevance(self, score: float, weights: Weights) -> float:
        """No surer than the support of a guess, and than that it answers the question where it is supported."""
        if not self.answers:
            return 0.0
        held = np.stack([parts @ np.array(weights) for parts in self.parts]).max(axis=0)
        return min(score, max(min(float(held[place]), sure) for place, sure in self.answers)) * self.factor


def conv_mrfs(
    candidate: str,
    references: Sequence[str | Document] | References,
    *,
    question: str | None = None,
    history: Sequence[tuple[str, str]] = (),
    weights: tuple[float, float, float] | None = None,
    threshold: float | None = None,
    items: Items | None = None,
    mode: Mode = "default",
    similarity: Similarity | None = None,
) -> ConvMRFS:
    """Verify a candidate against the evidence and the answers of earlier turns.

    The default form compares content words. Each sentence of the candidate is scored by its best segment (`claim_parts`) and
    by its numbers, names and negation (`verify_sentences`); the candidate's score is their mean, each sentence counting by its
    items. With a question, a guess that is a sentence stands where the evidence supports it; a bare span must also be the
    answer where it is supported (`answer_relevance`), and one with a number or a name that the references do not hold fails.

    The plain form is the papers': the best `faith_score` over whole references, T = 0.75.

    Args:
        candidate: A guess or a draft answer.
        references: Evidence, or `References` prepared once for several candidates.
        question: The (sub-)question that a guess answers; leave it out for a text that is not one answer to one question.
        history: Earlier pairs of question and answer; the answers count as references.
        weights: alpha, beta, gamma; the calibrated ones by default.
        threshold: T; `THRESHOLD`, or with a question `GUESS_THRESHOLD`, by default.
        items: Of the plain form only: "tokens" (the paper's, default) or "content".
        mode: "default" or "plain".
        similarity: An encoder's similarities of texts; joins the word shares. Off by default: it costs an encoder's time.

    Raises:
        InputError: The weights are not at least 0 with sum 1, or mode or items are unknown.

    Example:
        >>> evidence = ["John Hopfield described the network in 1982. Kohonen wrote about associative memory in 1977."]
        >>> conv_mrfs("1982", evidence, question="When did Hopfield describe the network?").faithful
        True
        >>> conv_mrfs("1977", evidence, question="When did Hopfield describe the network?").faithful
        False
        >>> conv_mrfs("Hopfield described it in 1982.", evidence).quote
        'John Hopfield described the network in 1982.'
    """
    if mode not in ("default", "plain"):
        raise InputError(f'mode must be "default" or "plain", not {mode!r}')
    prepared, candidate = References.of(references, history), clean(candidate)
    if mode == "plain":
        return _plain(candidate, prepared, weights, PAPER_THRESHOLD if threshold is None else threshold, items)
    question = clean(question or "").strip()
    checked = check_weights(weights or WEIGHTS)
    parts = candidate_parts(candidate, prepared, question, similarity)
    score, supports, relevance = parts.score(prepared, checked)
    if threshold is None:
        threshold = GUESS_THRESHOLD if question else THRESHOLD
    best = max(supports, key=lambda s: s.score * s.weight, default=None)
    return ConvMRFS(
        score=score,
        faithful=score > threshold,
        reference=best.reference if best else None,
        quote=best.quote if best else "",
        sentences=tuple(supports),
        threshold=threshold,
        relevance=relevance,
    )


def candidate_parts(candidate: str, references: References, question: str = "", similarity: Similarity | None = None) -> Parts:
    """Everything about a candidate that does not depend on the weights."""
    polar = polar_claim(candidate, question) if question else None
    if polar is not None:
        return Parts((polar,), (polar_parts(polar, references),))
    told = [] if question else list(_told(candidate, references, similarity))
    claims = tuple(claim for claim, _ in told)
    silent = not question and not claims and bool(content_tokens(candidate))
    if not claims and not silent:
        claims = segments(candidate)
    texts = [segment.text for segment in references.segments]
    near: Sequence[Array | None] = [None] * len(claims)
    if similarity is not None and claims and texts:
        near = [row.astype(float) for row in similarity([claim.text for claim in claims], texts)]
    parts = tuple(claim_parts(claim, references, row) for claim, row in zip(claims, near, strict=True))
    if not question:
        return Parts(claims, parts, verdicts=tuple(verdict for _, verdict in told), silent=silent)
    guess = Guess.of(candidate, claims, question)
    relevances = [relevance_of(text, guess.asked, guess.told) for text in references.references]
    answers = []
    for place in places_of(guess, parts, references, relevances) if parts else ():
        claim, segment = claims[place.claim], references.segments[place.segment]
        sure = answer_relevance(place.features) * place.factor
        text = references.references[references.owners[place.segment]]
        # A sentence whose numbers or names are not all in the text that supports it mixes two texts up.
        held = text.about | text.forms
        if not all(item.form in held for item in claim.items if item.is_number or item.is_name):
            sure *= UNFOUND_SHARE
        if any(item.is_number and item.form in guess.told and item.form not in segment.forms for item in claim.items):
            sure *= STRAY_SHARE
        answers.append((place.segment, sure))
    unfound = any((item.is_number or item.is_name) and item.form not in references.where for item in guess.new)
    gates = np.concatenate([relevance.gates for relevance in relevances]) if relevances else np.zeros(0)
    verdicts = (
        verify_sentences(candidate, references, question=question, similarity=similarity) if is_sentence(candidate) else ()
    )
    return Parts(claims, parts, UNFOUND_SHARE if unfound else 1.0, gates, tuple(answers), tuple(verdicts))


def _told(
    candidate: str, references: References, similarity: Similarity | None
) -> Iterator[tuple[Segment, SentenceVerdict | None]]:
    """The sentences of a text that claim something, cut from it without marks and frames, and the verdict on each that is no
    bare span.
    """
    verdicts = verify_sentences(candidate, references, similarity=similarity)
    for statement, verdict in zip(statements(candidate), verdicts, strict=True):
        judged = verdict if is_sentence(statement.claim) else None
        for claim in segments(statement.claim):
            yield replace(claim, text=statement.text, start=statement.start, end=statement.end), judged


def polar_claim(candidate: str, question: str) -> Segment | None:
    """The claim of a bare yes or no: the question as a statement, or its denial; None for any other candidate or question."""
    said, items = _POLAR.fullmatch(candidate), content_items(question)
    if said is None or not items or _OPEN_QUESTION.match(question):
        return None
    asked = segment_of(question, 0, items)
    claim = segment_of(candidate.strip(), said.start(1), items)
    return replace(claim, negated=asked.negated != (said[1].lower() == "no"), asserts=True)


def polar_parts(claim: Segment, references: References) -> Array:
    """The same score in place of each part, (m, 3): the share of the question in a segment, squared: a yes claims it all.

    The sentence before and the title may name what the segment speaks of. A number or a name that no reference holds, or a
    segment that says the opposite, lowers it.
    """
    found = np.zeros(len(references.segments))
    known = all(item.form in references.where for item in claim.items if item.is_number or item.is_name)
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


def _plain(candidate: str, references: References, weights: Weights | None, threshold: float, items: Items | None) -> ConvMRFS:
    best, score = None, 0.0
    for n, reference in enumerate(references.references):
        found = faith_score(candidate, reference.text, weights=weights or PAPER_WEIGHTS, items=items or "tokens").score
        if found > score:
            best, score = n, found
    if best is None:
        return ConvMRFS(0.0, threshold < 0, None, "", (), threshold, 0.0)
    quote = references.references[best].text
    support = SentenceSupport(candidate, 0, len(candidate), score, best, quote, 1.0)
    return ConvMRFS(score, score > threshold, best, quote, (support,), threshold, score)
