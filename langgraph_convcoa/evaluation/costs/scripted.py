"""Scripts of questions: what a model is to believe and what is right, so that methods can be compared under the same replies.

A script is a JSON file:

    {"questions": [{"id", "question", "answer", "sub_questions": [{"question", "answer", "guess", "right"}]}]}

A guess is what the model believes before it has looked anything up, "" where it believes nothing. A question may have a
`draft` (what the model would answer without looking), a `conversation` and a `right_share` (the cell of a table that it
belongs to); a sub-question a `passage`, the text in which the answer is found.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Turn

NOT_KNOWN = "I do not know."
"""What the model says where it believes nothing."""


@dataclass(frozen=True)
class ScriptedSub:
    """A sub-question: the right answer, the model's guess ("" for none) and whether that is right."""

    question: str
    answer: str
    guess: str
    right: bool
    passage: str


@dataclass(frozen=True)
class ScriptedQuestion:
    """A question with its sub-questions, its right answer and the model's draft."""

    id: str
    question: str
    answer: str
    sub_questions: tuple[ScriptedSub, ...]
    draft: str
    conversation: str
    right_share: float


@dataclass(frozen=True)
class Script:
    """Questions with everything that is replied to them.

    Example:
        >>> script = make_script(2, 0.5, questions=3)
        >>> [len(question.sub_questions) for question in script.questions]
        [2, 2, 2]
        >>> sum(sub.right for question in script.questions for sub in question.sub_questions)
        3
    """

    questions: tuple[ScriptedQuestion, ...]

    def turns(self) -> list[Turn]:
        """The questions as methods get them, with the right answers before them in a conversation."""
        told: dict[str, list[tuple[str, str]]] = {}
        turns = []
        for one in self.questions:
            history = told.setdefault(one.conversation, [])
            turns.append(Turn(one.id, one.conversation, one.question, tuple(history)))
            history.append((one.question, one.answer))
        return turns

    def documents(self) -> list[Document]:
        """One passage a sub-question."""
        return [
            Document(sub.passage, id=f"{one.id}#{n}", metadata={"source": one.id})
            for one in self.questions
            for n, sub in enumerate(one.sub_questions, 1)
        ]

    def retriever(self) -> ScriptRetriever:
        """A retriever over the passages."""
        return ScriptRetriever(self.documents())

    def save(self, path: str | Path) -> None:
        """Write the script as JSON, to be read by `load_script`.

        Raises:
            InputError: It cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False), encoding="utf-8")
        except OSError as error:
            raise InputError(f"the script cannot be written to {path}: {error.strerror}") from None


class ScriptRetriever(BaseRetriever):
    """Finds the passages that share the most words with a query, the same ones for the same query."""

    k: int = 5
    _documents: list[tuple[Document, frozenset[str]]] = PrivateAttr(default_factory=list)

    def __init__(self, documents: Sequence[Document], **settings: Any) -> None:
        super().__init__(**settings)
        self._documents = [(document, _words(document.page_content)) for document in documents]

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun | None = None, k: int | None = None
    ) -> list[Document]:
        asked = _words(query)
        found = sorted(self._documents, key=lambda entry: -len(asked & entry[1]))
        return [document for document, words in found[: k or self.k] if asked & words]


def load_script(path: str | Path) -> Script:
    """Read a script.

    Raises:
        InputError: It cannot be read; what is wrong is named.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = data["questions"]
    except OSError as error:
        raise InputError(f"the script {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f'the script {path} is no JSON object with a list under "questions"') from None
    if not isinstance(rows, list) or not rows:
        raise InputError(f"the script {path} holds no questions")
    questions = tuple(_question(row, number, path) for number, row in enumerate(rows, 1))
    repeated = {one.question for one in questions if [other.question for other in questions].count(one.question) > 1}
    if repeated:
        raise InputError(f"the script {path} asks twice: {min(repeated)!r}")
    return Script(questions)


def make_script(
    n: int,
    right_share: float,
    questions: int = 8,
    *,
    seed: int = 0,
    missing_share: float = 0.5,
    sentences: int = 1,
) -> Script:
    """Questions about things that nobody has heard of.

    Args:
        n: Sub-questions a question.
        right_share: Share of the guesses, over all questions, that are right.
        questions: How many.
        seed: Of the names, and of which guesses are right.
        missing_share: Share of the others that are missing; the rest is wrong.
        sentences: Of a passage; the first one answers, the others say nothing about it.

    Raises:
        InputError: A number is out of its range.
    """
    if n < 1 or questions < 1 or sentences < 1 or not 0 <= right_share <= 1 or not 0 <= missing_share <= 1:
        raise InputError("a script has at least 1 question, sub-question and sentence, and shares from 0 to 1")
    draw = random.Random(f"{seed} {n} {right_share}")  # noqa: S311 - made names, not secrets
    right = round(right_share * n * questions)
    missing = round(missing_share * (n * questions - right))
    kinds = ["right"] * right + ["missing"] * missing + ["wrong"] * (n * questions - right - missing)
    draw.shuffle(kinds)
    made = []
    for number in range(questions):
        things = [f"{_name(draw)} {draw.choice(_THINGS)}" for _ in range(n)]
        subs = [_sub(draw, thing, kinds.pop(), sentences) for thing in things]
        listed = ", ".join(f"the {thing}" for thing in things)
        guesses = [sub.guess for sub in subs]
        made.append(
            ScriptedQuestion(
                id=f"n{n}-r{right_share:g}-{number + 1}",
                question=f"Which architects gave plans for {listed}?",
                answer=" ".join(sub.answer for sub in subs),
                sub_questions=tuple(subs),
                draft=" ".join(guesses) if all(guesses) else "",
                conversation=f"n{n}-r{right_share:g}-{number + 1}",
                right_share=right_share,
            )
        )
    return Script(tuple(made))


_THINGS = ("bridge", "tower", "mill", "library", "harbour", "theatre", "station", "museum")
_FILLERS = (
    "Visitors come by the northern road in summer.",
    "The stone was brought from a quarry beyond the hills.",
    "A market is held in front of it on every second Friday.",
    "Its roof has been mended more often than anybody cares to count.",
    "Children of the neighbourhood play there after school.",
    "The entrance fee goes to the upkeep of the gardens.",
    "In winter the doors are closed at four in the afternoon.",
    "Old photographs show it without the trees of today.",
)
_SYLLABLES = ("bar", "del", "fen", "gor", "hal", "kel", "lum", "mar", "nor", "pel", "ras", "sil", "tor", "ul", "ven", "zan")


def _name(draw: random.Random) -> str:
    return "".join(draw.choice(_SYLLABLES) for _ in range(4)).capitalize()


def _sub(draw: random.Random, thing: str, kind: str, sentences: int) -> ScriptedSub:
    answer, wrong = (f"The {thing} was designed by {_name(draw)} {_name(draw)}." for _ in range(2))
    guess = {"right": answer, "wrong": wrong, "missing": ""}[kind]
    passage = " ".join([answer, *draw.sample(_FILLERS, min(sentences - 1, len(_FILLERS)))])
    return ScriptedSub(f"Who designed the {thing}?", answer, guess, kind == "right", passage)


def _question(row: Any, number: int, path: str | Path) -> ScriptedQuestion:
    where = f"question {number} of the script {path}"
    question, answer = _text(row, "question", where), _text(row, "answer", where)
    rows = row.get("sub_questions")
    if not isinstance(rows, list) or not rows:
        raise InputError(f'{where} needs a list under "sub_questions"')
    subs = tuple(_read_sub(sub, f"sub-question {n} of {where}") for n, sub in enumerate(rows, 1))
    share = sum(sub.right for sub in subs) / len(subs)
    return ScriptedQuestion(
        id=str(row.get("id") or number),
        question=question,
        answer=answer,
        sub_questions=subs,
        draft=str(row.get("draft") or ""),
        conversation=str(row.get("conversation") or row.get("id") or number),
        right_share=float(row["right_share"]) if isinstance(row.get("right_share"), int | float) else share,
    )


def _read_sub(row: Any, where: str) -> ScriptedSub:
    question, answer = _text(row, "question", where), _text(row, "answer", where)
    guess = str(row.get("guess") or "")
    right = row.get("right", False)
    if not isinstance(right, bool) or (right and not guess):
        raise InputError(f'{where} needs true or false under "right", and a guess where that is true')
    return ScriptedSub(question, answer, guess, right, str(row.get("passage") or answer))


def _text(row: Any, name: str, where: str) -> str:
    if not isinstance(row, dict) or not isinstance(row.get(name), str) or not row[name].strip():
        raise InputError(f"{where} needs a text under {name!r}")
    return str(row[name])


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
