"""The contextual knowledge set: what a conversation has established, as JSON (papers/001 section 3.3)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NotRequired

from langchain_core.messages.utils import count_tokens_approximately
from typing_extensions import TypedDict

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.errors import InputError

ROOT = "Contextual knowledge set"
EXTRA = "convcoa"


class Citation(TypedDict):
    """What [n] in an answer stands for."""

    id: str
    source: str
    quote: str


class RoundExtra(TypedDict):
    """Our own fields of a round, under the key "convcoa"."""

    chain: list[ChainItem]
    citations: list[Citation]
    time: str


class Round(TypedDict):
    """One round of the conversation with the papers' field names."""

    round: int
    original_question: str
    optimized_question: str
    sub_questions: dict[str, str]
    information_summaries: dict[str, str]
    answer: str
    convcoa: NotRequired[RoundExtra]


KnowledgeSetJSON = dict[str, list[Round]]
"""The state's form of the set: `{"Contextual knowledge set": [round, ...]}`."""


class ContextualKnowledgeSet:
    """The rounds of one conversation.

    Example:
        >>> knowledge = ContextualKnowledgeSet()
        >>> knowledge.add_round("When?", "When was sparsemax published?", [("When was it published?", "In 2016.")], "In 2016.")
        >>> knowledge.export(strict=True)["Contextual knowledge set"][0]["sub_questions"]
        {'sub1': 'When was it published?'}
    """

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        self.rounds: list[Round] = list(rounds)

    @classmethod
    def load(cls, data: KnowledgeSetJSON | str | None) -> ContextualKnowledgeSet:
        """Read an exported set, from JSON text or the parsed object.

        Raises:
            InputError: The text is not such a set.
        """
        if not data:
            return cls()
        try:
            parsed = json.loads(data) if isinstance(data, str) else data
            rounds = parsed[ROOT]
            for entry in rounds:
                entry["round"] + 1, entry["original_question"] + entry["answer"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not a contextual knowledge set: expected a JSON object with the key {ROOT!r}") from error
        return cls(rounds)

    def add_round(
        self,
        original_question: str,
        optimized_question: str,
        solved: Iterable[tuple[str, str]],
        answer: str,
        extra: RoundExtra | None = None,
    ) -> None:
        """Append a round; `solved` pairs each sub-question with the summary of what was found."""
        pairs = list(solved)
        entry: Round = {
            "round": self.rounds[-1]["round"] + 1 if self.rounds else 1,
            "original_question": original_question,
            "optimized_question": optimized_question,
            "sub_questions": {f"sub{n}": sub for n, (sub, _) in enumerate(pairs, 1)},
            "information_summaries": {f"infor{n}": summary for n, (_, summary) in enumerate(pairs, 1)},
            "answer": answer,
        }
        if extra is not None:
            entry["convcoa"] = extra
        self.rounds = [*self.rounds, entry]

    def seed(self, history: Iterable[tuple[str, str]]) -> None:
        """Where nothing is known yet, take earlier turns that came as messages for the first rounds."""
        if not self.rounds:
            for question, answer in history:
                self.add_round(question, question, [], answer)

    def export(self, *, strict: bool = False) -> KnowledgeSetJSON:
        """The set as JSON; with `strict`, the papers' fields only."""
        if not strict:
            return {ROOT: self.rounds}
        return {ROOT: [_strict(entry) for entry in self.rounds]}

    def view(self, question: str = "", budget_tokens: int = 1500) -> str:
        """The last rounds that fit a budget of tokens, oldest first, as the JSON that goes into a prompt; "" for none.

        Args:
            question: The present question (the memory of a later release chooses the rounds by it).
            budget_tokens: At most this many tokens, estimated at four characters each.
        """
        chosen: list[Round] = []
        for entry in reversed(self.rounds):
            candidate = [_strict(entry), *chosen]
            if count_tokens_approximately([_dump(candidate)]) > budget_tokens:
                break
            chosen = candidate
        if not chosen and self.rounds:
            chosen = _shortened(self.rounds[-1], budget_tokens)
        return _dump(chosen) if chosen else ""


def _shortened(entry: Round, budget_tokens: int) -> list[Round]:
    """The last round is never left out for its length: a follow-up needs it. Its texts are cut until it fits."""
    for length in (4000, 2000, 1000, 500, 250, 120, 60):

        def cut(value: Any, length: int = length) -> Any:
            if isinstance(value, dict):
                return {key: cut(item) for key, item in value.items()}
            return value if not isinstance(value, str) or len(value) <= length else f"{value[:length]}…"

        shorter = [cut(_strict(entry))]
        if count_tokens_approximately([_dump(shorter)]) <= budget_tokens:
            return shorter
    return []


def _strict(entry: Round) -> Round:
    return {key: value for key, value in entry.items() if key != EXTRA}  # type: ignore[return-value]


def _dump(rounds: list[Round]) -> str:
    return json.dumps({ROOT: rounds}, ensure_ascii=False)
