"""The memory of one conversation: its view for prompts, relevant earlier turns, recalled answers and earlier evidence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from cachetools import LRUCache

from langgraph_convcoa.memory.dynamic_history import DynamicHistory, Recalled, Triple
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, Round
from langgraph_convcoa.memory.vectors import QueryEncoder, TextVectors

RECENT = 3
"""Number of last rounds in a view."""
RELEVANT = 5
"""Number of relevant earlier rounds in a view."""
_PAIRS = 10
_RECENT_PAIRS = 6
_ABOUT = 0.6
"""Minimum relevance (cosine plus share of words) of a round on the question's topic."""
_CONVERSATIONS = 64
_LONGEST = 2_000


class ConversationMemory:
    """The history memory of conversations, made from their knowledge sets.

    It stores nothing that is not in the knowledge set. Its vectors are cached in the process and rebuilt after a restart. A
    turn encodes only the new round, however long the conversation is. `encoder` encodes questions, or is a function that
    returns the encoder. Without an encoder, words are compared.
    """

    def __init__(self, encoder: QueryEncoder | Callable[[], QueryEncoder | None] | None = None) -> None:
        self.vectors = TextVectors(encoder)
        self._built: LRUCache[tuple[int, int], DynamicHistory] = LRUCache(_CONVERSATIONS)
        self._lock = threading.Lock()

    def recollect(
        self,
        knowledge: ContextualKnowledgeSet,
        question: str,
        pairs: Sequence[tuple[str, str]],
        *,
        budget_tokens: int = 1500,
        capacity: int = 200,
    ) -> tuple[str, list[tuple[str, str]]]:
        """The view of the knowledge set for a prompt ("" if it is empty), and the history for retrieval and verification.

        `pairs` are the last turns of the conversation, oldest first. `capacity` is the number of rounds in the history memory.
        """
        found = self.relevant(knowledge, question, k=RELEVANT + RECENT, capacity=capacity)
        last = [entry["round"] for entry in knowledge.rounds[-RECENT:]]
        early = [recalled.triple.key for recalled in found if recalled.triple.key not in last][:RELEVANT]
        # First the last two rounds, so that a follow-up is understood; then the relevant rounds.
        wanted = [*last[::-1][:2], *early, *last[::-1][2:]]
        return knowledge.view(budget_tokens, wanted), _history(knowledge, pairs, found)

    def relevant(
        self, knowledge: ContextualKnowledgeSet, question: str, k: int = RELEVANT, capacity: int = 200
    ) -> list[Recalled]:
        """The k earlier rounds that are most relevant to a question, best first."""
        rounds = knowledge.rounds
        if not rounds or k < 1:
            return []
        keys = _keys(rounds, capacity)
        with self._lock:
            known = next((n for n in range(len(rounds), 0, -1) if keys[n] in self._built), 0)
        triples = [_triple(entry) for entry in rounds[known:]]
        *new, vector = self.vectors([*(triple.text for triple in triples), question])
        with self._lock:
            # If another turn has taken the history meanwhile, it is rebuilt.
            history = self._built.pop(keys[known], None) if known else DynamicHistory(capacity)
            # If the encoder has failed since, the dimensions differ.
            if history is not None and history.dimension in (0, len(vector)):
                for triple, row in zip(triples, new, strict=True):
                    history.update(triple, row)
                self._built[keys[-1]] = history
                return history.retrieve(question, vector, k)
        return self.relevant(knowledge, question, k, capacity)

    def topic(self, knowledge: ContextualKnowledgeSet, question: str, *, leans: bool, capacity: int = 200) -> set[int]:
        """Numbers of the rounds on a question's topic, and the last round if the question depends on the conversation."""
        found = self.relevant(knowledge, question, RELEVANT + RECENT, capacity)
        rounds = {recalled.triple.key for recalled in found if recalled.relevance >= _ABOUT}
        return rounds | ({knowledge.rounds[-1]["round"]} if leans and knowledge.rounds else set())


def _history(
    knowledge: ContextualKnowledgeSet, pairs: Sequence[tuple[str, str]], found: Sequence[Recalled]
) -> list[tuple[str, str]]:
    """All turns of a short conversation. In a long one, the earlier turns on the question's topic and then the last turns."""
    if len(knowledge.rounds) <= _PAIRS:
        return list(pairs)
    recent = list(pairs)[-_RECENT_PAIRS:]
    before = {entry["round"]: entry for entry in knowledge.rounds[: -len(recent) or None]}
    keys = [r.triple.key for r in found if r.triple.key in before and r.relevance >= _ABOUT][: _PAIRS - _RECENT_PAIRS]
    early = [(before[key]["original_question"][:_LONGEST], before[key]["answer"][:_LONGEST]) for key in sorted(keys)]
    return [*early, *recent]


def _keys(rounds: Sequence[Round], capacity: int) -> list[tuple[int, int]]:
    """Cache keys of the history after 0, 1, ... rounds, made of the capacity and a hash of the rounds."""
    keys = [(capacity, 0)]
    for entry in rounds:
        content = (entry["round"], entry["original_question"], entry["optimized_question"], entry["answer"])
        keys.append((capacity, hash((keys[-1][1], content))))
    return keys


def _triple(entry: Round) -> Triple:
    query = entry["original_question"]
    if entry["optimized_question"].strip() not in ("", query.strip()):
        query = f"{query} {entry['optimized_question']}"
    return Triple(entry["round"], query[:_LONGEST], entry["answer"])
