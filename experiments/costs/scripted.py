"""Scripts for a simulated model: questions, right answers and guesses.

A script is a JSON file:

    {"questions": [{"id", "question", "answer", "sub_questions": [{"question", "answer", "guess", "right"}]}]}

A guess is what the model believes before it has looked anything up, "" for nothing. A question may have a `draft` (the answer
of the model without looking), a `conversation` and a `right_share` (its cell in a table). A sub-question may have a `passage`,
the text that holds its answer.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Turn

NOT_KNOWN = "I do not know."
"""What the model says if it believes nothing."""


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Optional = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]


class ScriptedSub(BaseModel):
    """A sub-question: the right answer, the model's guess ("" for none), whether it is right, the text with the answer."""

    model_config = ConfigDict(frozen=True)

    question: _Text
    answer: _Text
    guess: _Optional = ""
    right: StrictBool = False
    passage: _Optional = ""

    @model_validator(mode="after")
    def _right_guess(self) -> ScriptedSub:
        if self.right and not self.guess:
            raise ValueError("where `right` is true there must be a guess")
        return self


class ScriptedQuestion(BaseModel):
    """A question with its sub-questions, its right answer and the model's draft."""

    model_config = ConfigDict(frozen=True)

    id: _Optional = ""
    question: _Text
    answer: _Text
    sub_questions: tuple[ScriptedSub, ...] = Field(min_length=1)
    draft: _Optional = ""
    conversation: _Optional = ""
    right_share: float = -1.0


@dataclass(frozen=True)
class Script:
    """Questions, with all that the replies of the model need."""

    questions: tuple[ScriptedQuestion, ...]

    def turns(self) -> list[Turn]:
        """The questions as methods get them. The history of a question has the right answers."""
        told: dict[str, list[tuple[str, str]]] = {}
        turns = []
        for one in self.questions:
            history = told.setdefault(one.conversation, [])
            turns.append(Turn(one.id, one.conversation, one.question, tuple(history)))
            history.append((one.question, one.answer))
        return turns

    def documents(self) -> list[Document]:
        """One passage for each sub-question."""
        return [
            Document(sub.passage or sub.answer, id=f"{one.id}#{n}", metadata={"source": one.id})
            for one in self.questions
            for n, sub in enumerate(one.sub_questions, 1)
        ]

    def retriever(self) -> _ScriptRetriever:
        """A retriever over the documents."""
        return _ScriptRetriever(self.documents())

    def save(self, path: str | Path) -> None:
        """Write the script as JSON, to be read by `load_script`."""
        try:
            rows = [one.model_dump() for one in self.questions]
            Path(path).write_text(json.dumps({"questions": rows}, indent=1, ensure_ascii=False), encoding="utf-8")
        except OSError as error:
            raise InputError(f"the script cannot be written to {path}: {error.strerror}") from None


class _ScriptRetriever(BaseRetriever):
    """Finds the passages that share the most words with a query, the same ones for the same query."""

    k: int = 5
    _documents: list[tuple[Document, frozenset[str]]] = PrivateAttr(default_factory=list)

    def __init__(self, documents: Iterable[Document], **settings: Any) -> None:
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
        InputError: The script cannot be read; the message names the place of the error.
    """
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))["questions"]
        questions = TypeAdapter(list[ScriptedQuestion]).validate_python(rows)
    except OSError as error:
        raise InputError(f"the script {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise InputError(f"the script {path} is wrong at questions{place}: {first['msg']}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f'the script {path} is no JSON object with a list under "questions"') from None
    if not questions:
        raise InputError(f"the script {path} holds no questions")
    if repeated := [text for text, count in Counter(one.question for one in questions).items() if count > 1]:
        raise InputError(f"the script {path} asks twice: {min(repeated)!r}")
    return Script(tuple(_completed(one, number) for number, one in enumerate(questions, 1)))


def _completed(one: ScriptedQuestion, number: int) -> ScriptedQuestion:
    """A question with the values that its row leaves out."""
    share = sum(sub.right for sub in one.sub_questions) / len(one.sub_questions)
    known = {"id": one.id or str(number), "conversation": one.conversation or one.id or str(number)}
    return one.model_copy(update={**known, "right_share": share if one.right_share < 0 else one.right_share})


def make_script(
    n: int, right_share: float, questions: int = 8, *, seed: int = 0, missing_share: float = 0.5, sentences: int = 1
) -> Script:
    """Make questions with `n` sub-questions each, about invented things.

    `right_share` of the guesses are right. `missing_share` of the others are missing, the rest are wrong. The first sentence
    of a passage holds the answer, the others do not.
    """
    if n < 1 or questions < 1 or sentences < 1 or not 0 <= right_share <= 1 or not 0 <= missing_share <= 1:
        raise InputError("a script has at least 1 question, sub-question and sentence, and shares from 0 to 1")
    draw = random.Random(f"{seed} {n} {right_share}")
    right = round(right_share * n * questions)
    missing = round(missing_share * (n * questions - right))
    kinds = ["right"] * right + ["missing"] * missing + ["wrong"] * (n * questions - right - missing)
    draw.shuffle(kinds)
    made = []
    for number in range(1, questions + 1):
        name = f"n{n}-r{right_share:g}-{number}"
        things = [f"{_name(draw)} {draw.choice(_THINGS)}" for _ in range(n)]
        subs = [_sub(draw, thing, kinds.pop(), sentences) for thing in things]
        question = f"Which architects gave plans for {', '.join(f'the {thing}' for thing in things)}?"
        answer, guesses = " ".join(sub.answer for sub in subs), [sub.guess for sub in subs]
        told = {"draft": " ".join(guesses) if all(guesses) else "", "right_share": right_share}
        one = {"id": name, "question": question, "answer": answer, "sub_questions": subs, "conversation": name, **told}
        made.append(ScriptedQuestion.model_validate(one))
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
    question = f"Who designed the {thing}?"
    return ScriptedSub(question=question, answer=answer, guess=guess, right=kind == "right", passage=passage)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
