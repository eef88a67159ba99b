"""A reasoner without a model: it answers with the sentences of the evidence that match best."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import SOLVED, ActionChain, ActionNode, ChainItem, Status
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, History, PlanRequest, Reasoner, Unsolved
from langgraph_convcoa.reasoning.extractive.compound import split_question
from langgraph_convcoa.reasoning.extractive.coverage import NOTHING, Coverage, cover
from langgraph_convcoa.reasoning.extractive.query import NEEDED, Query, asks_to_compute, make_query, stands_alone
from langgraph_convcoa.reasoning.extractive.quotes import ELLIPSIS, Quote, choose_quotes, clip
from langgraph_convcoa.reasoning.extractive.reading import count_words
from langgraph_convcoa.reasoning.extractive.sentence_ranking import Candidate, is_about, passage_score, rank_sentences
from langgraph_convcoa.retrieval.encoders.base import Encoder, RecentEncoder
from langgraph_convcoa.text.words import CLOSING, STOPS, content_words

NEAREST_WORDS = 25  # Words of the nearest passage that are shown if nothing was found.
_GREETS = (
    "hi|hiya|hello|hey|howdy|greetings|good (?:morning|afternoon|evening|day|night)|thx|cheers|bye|goodbye|see you|ok(?:ay)?"
    "|thanks?(?: you| a lot| so much)*|thank you(?: very much| so much)?|great|nice|cool"
)
_LONGEST_GREETING = 200
_SMALL_TALK = re.compile(rf"\W*\b(?:{_GREETS})\b(?:\W*\b(?:{_GREETS}|there|everyone|all|how are you)\b)*\W*", re.IGNORECASE)
_THANKS = re.compile(r"\b(?:thank|thanks|thx|cheers)\b", re.IGNORECASE)
_STOP = re.compile(rf"[{STOPS}][{CLOSING}]*\Z")
_FULL_STOP = re.compile(rf"\.+(?=[{CLOSING}]*\Z)")
_ROWS = "rows were found"
OFF_TOPIC = 0.6  # The passage of a further sentence has at least this share of the coverage of the best sentence's passage.
MEANT = 0.5  # A sentence with this cosine to the question makes up for passages below `min_coverage`.


class ExtractiveReasoner(Reasoner):
    """Splits compound questions and answers with the best sentences, cited; no model, no network.

    Args:
        encoder: Adds similarity of meaning to the choice of sentences; without an encoder only the words count.
        max_words: Maximum number of words of an answer, citation marks included.
        min_coverage: Share of the question's words, weighted by rarity, that the best passage must hold if no sentence of
            the evidence is close in meaning.

    Raises:
        InputError: max_words is below 10.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langgraph_convcoa.reasoning.base import CorrectRequest, Unsolved
        >>> evidence = [Document("Dense memories came later. Hopfield networks were introduced in 1982.", id="a")]
        >>> item = Unsolved(0, "When were Hopfield networks introduced?", "", evidence)
        >>> ExtractiveReasoner().correct(CorrectRequest(item.sub_question, [item])).corrections[0].answer
        'Hopfield networks were introduced in 1982.'
    """

    uses_model = False

    def __init__(self, encoder: Encoder | None = None, max_words: int = 60, *, min_coverage: float = 0.25) -> None:
        if max_words < 10:
            raise InputError(f"max_words must be at least 10, not {max_words}.")
        self.encoder = None if encoder is None else RecentEncoder(encoder, 1_000)
        self.max_words = max_words
        self.min_coverage = min_coverage

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        """Plan a node for each part of the question, without a guess. The answer to a greeting says what can be asked."""
        if small_talk(request.question):
            return ActionChain(optimized_question=request.question, draft_answer=_greeting(request.question, request.actions))
        if special := [name for name, is_one in request.recognised.items() if is_one]:
            node = ActionNode(action=special[0], sub_question=request.question, missing=True)
            # An action may recognise a question only by the conversation before it.
            return ActionChain(optimized_question=request.question, nodes=(node,), self_contained=False)
        actions = {name: about for name, about in request.actions.items() if name not in request.recognised}
        # A question that holds a clarifying question and its answer is not split.
        parts = split_question(request.question, 1 if request.asked_back else request.max_sub_questions)
        nodes = tuple(
            ActionNode(action=_best_action(part, actions), sub_question=part, missing=True)
            for part in parts
            if actions and part.strip()
        )
        alone = all(stands_alone(part) for part in parts)
        return ActionChain(optimized_question=request.question, nodes=nodes, self_contained=alone)

    def finds(self, question: str, evidence: Sequence[Document], history: History) -> bool:
        """Whether the evidence holds an answer. If not, the next action is asked."""
        return bool(_stated(evidence) or self._ranked(question, history, evidence).answers)

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        """Find the best sentence for each item, or say why there is none, and make the answer of the best sentences."""
        if small_talk(request.question):
            return Corrected((), _greeting(request.question, {}))
        found = {
            item.index: self._ranked(item.sub_question, request.history, item.evidence)
            for item in request.items
            if not _stated(item.evidence)
        }
        corrections = [self._corrected(item, found) for item in request.items]
        chain = [item.copy() for item in request.chain]
        for correction in corrections:
            if correction.index < len(chain):
                status: Status = "filled" if correction.supported else "unsupported"
                chain[correction.index] |= {"answer": correction.answer, "status": status}
        return Corrected(corrections, self._answer(replace(request, chain=chain), found))

    def _corrected(self, item: Unsolved, found: Mapping[int, _Ranking]) -> Correction:
        if stated := _stated(item.evidence):
            return Correction(item.index, " ".join(stated.values()), "as the evidence states", score=1.0)
        ranking = found[item.index]
        if not ranking.answers:
            return Correction(item.index, "", ranking.reason, supported=False)
        best = ranking.answers[0]
        reason = f"best matching sentence of {_name(item.evidence[best.document])}"
        return Correction(item.index, clip(best, ranking.query, self.max_words), reason, score=min(best.coverage, 1.0))

    def _answer(self, request: CorrectRequest, found: Mapping[int, _Ranking]) -> str:
        """The best sentences of every solved sub-question, with their [n], and a note for each sub-question without an answer.

        `found` holds the rankings of the sub-questions that were corrected, by their place in the chain.
        """
        if not request.chain:
            question = request.optimized_question or request.question
            ranking = self._by_score(question, request, range(len(request.evidence)))
            return _joined(self._quotes(ranking, request, self.max_words)) or self._nothing(ranking, request)
        failed = [item for item in request.chain if item["status"] == "failed"]
        without = [item for item in request.chain if item["status"] == "unsupported"]
        # Two sub-questions often have the same sentence as their answer: it is given once.
        solved = list({item["answer"]: item for item in reversed(request.chain) if item["status"] in SOLVED}.values())[::-1]
        if not solved and not failed:
            rankings = (
                found.get(place) or self._by_score(item["sub_question"], request, _places(item, request))
                for place, item in enumerate(request.chain)
            )
            told = (self._nothing(ranking, request) for ranking in rankings)
            return next((text for text in told if text != NOTHING), NOTHING)
        notes = [_failure(item, len(request.chain)) for item in failed]
        notes += [f'I found nothing about "{item["sub_question"]}" in the documents.' for item in without]
        notes = _fitted(notes, self.max_words // 2 if solved else self.max_words)
        left = self.max_words - sum(count_words(note) for note in notes)
        texts: list[str] = []
        shown: list[str] = []
        for number, item in enumerate(solved):
            budget = _share([count_words(other["answer"]) + 1 for other in solved[number:]], left)
            texts.append(self._solved(item, request, budget, shown))
            left -= count_words(texts[-1])
        return " ".join(dict.fromkeys(filter(None, [*texts, *notes]))) or NOTHING

    def _nothing(self, ranking: _Ranking, request: CorrectRequest) -> str:
        """Say that nothing was found, and quote the nearest passage if it shares a word with the question."""
        if ranking.reason.startswith(_ROWS):
            return f"{NOTHING} {ranking.reason[0].upper()}{ranking.reason[1:]}."
        nearest = max(ranking.sentences, key=lambda candidate: (candidate.held, candidate.probability), default=None)
        if nearest is None or nearest.coverage <= 0 or self.max_words < 2 * NEAREST_WORDS:
            return NOTHING
        text = clip(nearest, ranking.query, NEAREST_WORDS).replace("“", "‘").replace("”", "’")
        place = _place(ranking.evidence[nearest.document], request.evidence)
        return f"{NOTHING} The nearest passage is “{_FULL_STOP.sub('', text)}” [{place + 1}]."

    def _solved(self, item: ChainItem, request: CorrectRequest, budget: int, shown: list[str]) -> str:
        """The answer to a solved sub-question. `shown` holds the quotes of the sub-questions before it."""
        places = _places(item, request)
        if stated := _stated([request.evidence[place] for place in places]):
            lines = any("\n" in text for text in stated.values())
            return ("\n" if lines else " ").join(_cited(text, places[n] + 1) for n, text in stated.items())
        found = item["status"] in ("filled", "corrected")
        if found and (quotes := self._quotes(self._by_score(item["sub_question"], request, places), request, budget)):
            new = [quote for quote in quotes if not any(quote.text.strip(ELLIPSIS) in text for text in shown)]
            shown += [quote.text for quote in new]
            return _joined(new)
        text = _fitted([item["answer"]], budget - 1)[0]
        return _cited(text, places[0] + 1) if places and text else text

    def _quotes(self, ranking: _Ranking, request: CorrectRequest, budget: int) -> list[Quote]:
        if not (ranked := ranking.answers):
            return []
        # Further sentences come from passages that cover the question about as well as the best sentence's passage.
        ranked = [c for c in ranked if c.share >= ranked[0].share and c.coverage >= OFF_TOPIC * ranked[0].coverage]
        chosen = choose_quotes(ranked, ranking.query, budget)
        return [replace(q, document=_place(ranking.evidence[q.document], request.evidence)) for q in chosen]

    def _by_score(self, question: str, request: CorrectRequest, places: Iterable[int]) -> _Ranking:
        """Rank the sentences of the evidence in its order of retrieval: by score or, after an evidence graph, by place."""
        # Verification has put the document of the short answer first.
        evidence = [request.evidence[place] for place in places]
        if any("graph_path" in document.metadata for document in evidence):
            evidence = [request.evidence[place] for place in sorted(places)]
        else:
            evidence.sort(key=passage_score, reverse=True)
        return self._ranked(question, request.history, evidence)

    def _ranked(self, question: str, history: History, evidence: Sequence[Document]) -> _Ranking:
        """Rank the sentences of the evidence, and choose those that answer the question, or say why none does."""
        query = make_query(question, history)
        coverage = cover(question, evidence, history, query.leans)
        sentences = rank_sentences(query, evidence, self.encoder, coverage.shares)
        answers: list[Candidate] = []
        reason = "no evidence was found"
        if evidence:
            answers, reason = self._answers(question, query, coverage, evidence, sentences)
        return _Ranking(query, evidence, sentences, answers, reason)

    def _answers(
        self, question: str, query: Query, coverage: Coverage, evidence: Sequence[Document], sentences: Sequence[Candidate]
    ) -> tuple[list[Candidate], str]:
        """The candidates whose passages hold what the question names, best first; or [] and the reason."""
        if coverage.missing:
            return [], coverage.missing
        found = [c for c in sentences if coverage.may_answer(c.document)]
        covered = any(c.coverage >= self.min_coverage for c in found)
        close = self.encoder is not None and any(c.similarity >= MEANT for c in found)
        # A question of function words only ("why?") has no weights.
        if not found or not query.weights or not (covered or close):
            return [], "no sentence of the evidence is about this"
        if asks_to_compute(question) and (rows := _rows(evidence[found[0].document])):
            return [], f"{_ROWS}; sums need --data {rows}"
        if not (about := [c for c in found if is_about(query, c)]):
            return [], "no sentence of the evidence is about this"
        first = next((c for c in about if c.fits), about[0] if query.leans else None)
        if first is None:
            return [], f"no sentence about this holds a {NEEDED[query.kind]}"
        # Only the first sentence must hold the name, time or number.
        return [first, *(c for c in found if c is not first and c.probability <= first.probability)], ""


@dataclass(frozen=True)
class _Ranking:
    """All sentences of the evidence for a question; `answers` are those that answer it, `reason` says why none does."""

    query: Query
    evidence: Sequence[Document]
    sentences: Sequence[Candidate]
    answers: Sequence[Candidate]
    reason: str


def small_talk(question: str) -> bool:
    """Whether a text only greets, thanks or says goodbye.

    Example:
        >>> [small_talk(text) for text in ("Hi!", "thanks a lot", "Hi, who introduced sparsemax?")]
        [True, True, False]
    """
    return len(question) <= _LONGEST_GREETING and _SMALL_TALK.fullmatch(question.strip()) is not None


def _greeting(question: str, actions: dict[str, str]) -> str:
    """A greeting, and what can be asked: the beginnings of the actions' descriptions."""
    about = [" ".join(description.split(";")[0].split())[:200].rstrip(". ") for description in actions.values()]
    able = f", which I look up as follows: {'; '.join(filter(None, about))}" if any(about) else ""
    return f"{'You are welcome' if _THANKS.search(question) else 'Hello'}! Please ask me a question{able}."


def _best_action(question: str, actions: dict[str, str]) -> str:
    """The action whose name and description share most words with the question; the first if several do."""
    asked = set(content_words(question))
    return max(actions, key=lambda name: len(asked & set(content_words(f"{name.replace('_', ' ')} {actions[name]}"))))


def _stated(evidence: Sequence[Document]) -> dict[int, str]:
    """Answers that an action computed (its `extract`), by the place of their evidence. They are not searched for sentences."""
    told = {place: document.metadata.get("extract") for place, document in enumerate(evidence)}
    return {place: text for place, text in told.items() if isinstance(text, str) and text}


def _places(item: ChainItem, request: CorrectRequest) -> list[int]:
    places = {document.id: place for place, document in enumerate(request.evidence)}
    return [places[identity] for identity in item["evidence"] if identity in places]


def _place(document: Document, evidence: Sequence[Document]) -> int:
    return next(place for place, one in enumerate(evidence) if one is document or (one.id and one.id == document.id))


def _joined(quotes: Sequence[Quote]) -> str:
    return " ".join(_cited(quote.text, quote.document + 1) for quote in quotes)


def _cited(text: str, number: int) -> str:
    """A text with its mark before the full stop, also before one inside a quotation."""
    if (stop := _STOP.search(text)) is not None:
        return f"{text[: stop.start()]} [{number}]{stop[0]}"
    return f"{text} [{number}]."


def _rows(document: Document) -> str:
    """The file whose rows a passage holds, or ""."""
    return str(document.metadata.get("source") or "a table") if "row" in document.metadata else ""


def _name(document: Document) -> str:
    metadata = document.metadata
    return str(metadata.get("title") or metadata.get("source") or document.id or "the evidence")


def _failure(item: ChainItem, parts: int) -> str:
    what = f' "{item["sub_question"]}"' if parts > 1 else " this"
    reason = item["reason"].strip().rstrip(".")
    return f"I could not look up{what}{f': {reason}' if reason else ''}."


def _share(needs: Sequence[int], budget: int) -> int:
    """Number of words for the first part: its need and an equal share of the rest. A small budget is divided by need."""
    rest = budget - sum(needs)
    return max(2, needs[0] + rest // len(needs) if rest >= 0 else budget * needs[0] // sum(needs))


def _fitted(texts: Sequence[str], budget: int) -> list[str]:
    """Cut each text to its share of a budget of words."""
    fitted = []
    for number, text in enumerate(texts):
        share = max(1, budget // (len(texts) - number))
        pieces = text.split()
        while len(pieces) > 1 and count_words(" ".join(pieces)) > share:
            pieces.pop()
        short = " ".join(pieces) + "…" * (len(pieces) < len(text.split()))
        fitted.append(short)
        budget -= count_words(short)
    return fitted
