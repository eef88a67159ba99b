"""The contextual knowledge set, the rounds of a conversation as JSON (Pan et al. 2024b, section 3.3)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NotRequired, cast

from langchain_core.messages import AnyMessage
from langchain_core.messages.utils import count_tokens_approximately
from typing_extensions import TypedDict

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.clean import shortened
from langgraph_convcoa.text.words import sentences

ROOT = "Contextual knowledge set"
EXTRA = "convcoa"
CLARIFICATION = "clarification"  # The key in `additional_kwargs` that marks a message as a clarifying question.
_LAST_CHARACTERS, _EARLIER_CHARACTERS = 1200, 400
"""Maximum number of characters of a text in a view: in the last round, and in an earlier round."""
_OFFER = re.compile(
    r"(?i)\b(?:how|what) (?:can|may) (?:i|we) (?:do|help|assist)\b|\b(?:what would you like|is there anything|anything else)\b"
    r"|^\W*(?:would you like (?:me )?to|do you want (?:me to|more))\b"
)


class Citation(TypedDict):
    """The evidence that [n] in an answer stands for."""

    id: str
    source: str
    quote: str


class RoundExtra(TypedDict):
    """Our own fields of a round, under the key "convcoa"."""

    chain: list[ChainItem]
    citations: list[Citation]
    time: str
    evidence: NotRequired[list[Citation]]  # Evidence of items that the answer does not cite.
    unsupported: NotRequired[list[str]]  # Sentences of the answer that no evidence supports.
    asked_back: NotRequired[str]  # The earlier question and the clarifying question that the question answers.
    rating: NotRequired[str]  # The user's rating of the answer: "up" or "down".


class Round(TypedDict):
    """One round of the conversation with the papers' field names."""

    round: int
    original_question: str
    optimized_question: str
    sub_questions: dict[str, str]
    information_summaries: dict[str, str]
    answer: str
    convcoa: NotRequired[RoundExtra]


KnowledgeSetJSON = dict[str, list[Round]]  # The state's form of the set: `{"Contextual knowledge set": [round, ...]}`.


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

        The papers' fields must be there; our own fields, under "convcoa", may be missing, as after `export(strict=True)`.
        Raises InputError if the data is not such a set; the message names the round.
        """
        if not data:
            return cls()
        try:
            parsed = json.loads(data) if isinstance(data, str) else data
            rounds = parsed[ROOT]
            for entry in rounds:
                _check(entry)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f": {error}" if isinstance(error, ValueError) else ""
            raise InputError(
                f"not a contextual knowledge set: expected a JSON object with the key {ROOT!r}{reason}"
            ) from error
        return cls(rounds)

    def add_round(
        self,
        original_question: str,
        optimized_question: str,
        solved: Iterable[tuple[str, str]],
        answer: str,
        extra: RoundExtra | None = None,
    ) -> None:
        """Append a round; `solved` holds pairs of sub-question and summary."""
        pairs = list(enumerate(solved, 1))
        entry: Round = {
            "round": self.rounds[-1]["round"] + 1 if self.rounds else 1,
            "original_question": original_question,
            "optimized_question": optimized_question,
            "sub_questions": {f"sub{n}": sub for n, (sub, _) in pairs},
            "information_summaries": {f"infor{n}": summary for n, (_, summary) in pairs},
            "answer": answer,
        }
        if extra is not None:
            entry["convcoa"] = extra
        self.rounds = [*self.rounds, entry]

    def without_question_back(self) -> ContextualKnowledgeSet:
        """The set without its last round if that is a clarifying question: the next round replaces it."""
        return ContextualKnowledgeSet(entry for entry in self.rounds if not asks_back(entry))

    def rate(self, number: int, rating: str) -> None:
        """Set a person's rating of the answer of a round: "up", "down", or "" for no rating.
        Raises InputError if there is no such round, or the rating is unknown.
        """
        if rating not in ("up", "down", ""):
            raise InputError('an answer is rated "up" or "down", or with "" not at all')
        if (old := next((entry for entry in self.rounds if entry["round"] == number), None)) is None:
            raise InputError(f"there is no round {number} in this conversation")
        extra: RoundExtra = {"chain": [], "citations": [], "time": "", **old.get("convcoa", {}), "rating": rating}
        if not rating:
            del extra["rating"]
        rated: Round = {**old, "convcoa": extra}
        self.rounds = [rated if entry is old else entry for entry in self.rounds]

    def after(self, shared: Sequence[Round]) -> ContextualKnowledgeSet:
        """This set after rounds of other conversations, which get the numbers ..., -1, 0."""
        renumbered: list[Round] = [{**entry, "round": n - len(shared)} for n, entry in enumerate(shared, 1)]
        return ContextualKnowledgeSet([*renumbered, *self.rounds])

    def seed(self, history: Iterable[tuple[str, str]]) -> None:
        """If the set is empty, make its first rounds from earlier turns, which were given as messages."""
        if not self.rounds:
            for question, answer in history:
                self.add_round(question, question, [], answer)

    def export(self, *, strict: bool = False) -> KnowledgeSetJSON:
        """The set as JSON; with `strict`, the papers' fields only."""
        papers = [{name: value for name, value in entry.items() if name != EXTRA} for entry in self.rounds]
        return {ROOT: cast("list[Round]", papers) if strict else self.rounds}

    def view(self, budget_tokens: int = 1500, rounds: Sequence[int] | None = None) -> str:
        """Text of the rounds for a prompt, oldest first, within a budget of tokens (four characters each).

        A round has its question, its answer without citation marks, and the summaries that the answer does not repeat. The
        last round goes in first, cut if it is too long. If there is none, or even the cut round does not fit, the view is "".
        `rounds` are the numbers of the rounds, the most important first; if None, the last rounds that fit.
        """
        if not self.rounds:
            return ""
        last = self.rounds[-1]
        by_number = {entry["round"]: entry for entry in self.rounds}
        wanted = [entry["round"] for entry in reversed(self.rounds)] if rounds is None else list(rounds)
        others = [by_number[number] for number in dict.fromkeys(wanted) if number in by_number and number != last["round"]]
        chosen: dict[int, str] = {}
        for entry in (last, *others):
            lengths = [_LAST_CHARACTERS >> n for n in range(6)] if entry is last else [_EARLIER_CHARACTERS]
            for text in (_as_text(entry, length) for length in lengths):
                if count_tokens_approximately(["\n".join((*chosen.values(), text))]) <= budget_tokens:
                    chosen[entry["round"]] = text
                    break
            else:
                break
        return "\n".join(chosen[number] for number in sorted(chosen))


def asks_back(entry: Round) -> bool:
    """Whether the answer of a round is a clarifying question."""
    return any(item.get("status") == "asked" for item in entry["convcoa"]["chain"]) if "convcoa" in entry else False


def told_question(entry: Round) -> str:
    """The question of a round for a person to read. A clarifying question in it stands in brackets."""
    whole, back = entry["original_question"], entry["convcoa"].get("asked_back", "") if "convcoa" in entry else ""
    earlier, _, asked = back.rpartition("\n")
    return f"{earlier} (asked back: {asked}) {whole.removeprefix(back).strip()}" if back else whole


def is_question_back(message: AnyMessage, back: str | None = None) -> bool:
    """Whether a message is a clarifying question: it has the mark (most clients drop it), or equals the last one."""
    # `back` is "" for a thread without one, and None without a thread: then a message counts if it only asks.
    marked = bool(message.additional_kwargs.get(CLARIFICATION))
    return marked or (message.text == back if back is not None else asks(message.text, only=True))


def asks(text: str, *, only: bool = False) -> bool:
    """Whether a text asks something, such as "Which one? Please name it."; with `only`, whether all its sentences ask."""
    # An offer of help asks nothing, and a text with a mark [n] answers.
    text, ends = text.strip(), ("?", "？", "؟")
    if without_marks(text) != text or (only and not text.endswith(ends)):
        return False
    asked = [one.text.endswith(ends) and not _OFFER.search(one.text) for one in sentences(text)]
    return all(asked) if only else any(asked)


def _check(entry: Any) -> None:
    """Raise ValueError if a round lacks one of the papers' fields, or if its "convcoa" field is wrong."""
    if not isinstance(entry, dict) or isinstance(entry.get("round"), bool) or not isinstance(entry.get("round"), int):
        raise ValueError('every round needs a number under "round"')
    for name in ("original_question", "optimized_question", "answer"):
        if not isinstance(entry.get(name), str):
            raise ValueError(f"round {entry['round']} needs a text under {name!r}")
    for name in ("sub_questions", "information_summaries"):
        texts = entry.get(name)
        if not isinstance(texts, dict) or not all(isinstance(text, str) for pair in texts.items() for text in pair):
            raise ValueError(f"round {entry['round']} needs an object of texts under {name!r}")
    extra = entry.get(EXTRA)
    if EXTRA in entry and not (isinstance(extra, dict) and {"chain", "citations", "time"} <= extra.keys()):
        raise ValueError(f"round {entry['round']} needs chain, citations and time under {EXTRA!r}, or no {EXTRA!r}")


def _as_text(entry: Round, length: int) -> str:
    """Text of a round for a prompt; each part has at most `length` characters."""
    answer = without_marks(entry["answer"]).strip()
    lines = [f"User: {shortened(entry['original_question'], length)}"]
    solved = zip(entry["sub_questions"].values(), entry["information_summaries"].values(), strict=False)
    if len(entry["sub_questions"]) > 1:
        lines += [
            f"({shortened(sub, length)} {shortened(found, length // 2)})"
            for sub, found in solved
            if found.split(" — ")[0].rstrip(".") not in answer
        ]
    return "\n".join([*lines, f"Assistant: {shortened(answer, length)}"] if answer else lines)
