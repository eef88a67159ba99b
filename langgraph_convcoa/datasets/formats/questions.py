"""Published sets of single-turn questions, most used by Pan et al. 2024a. Those before HotpotQA have few or no passages.

- WebQuestions (Berant et al. 2013), also in the forms of data hubs and DrQA. JSON tasks of BIG-bench (Srivastava et al. 2022).
- Social IQa (Sap et al. 2019): the right answers are in `train-labels.lst` beside `train.jsonl`, or in the field "correct".
- TruthfulQA (Lin et al. 2022): a CSV. The first reference is the best answer.
- StrategyQA (Geva et al. 2021): the passages are the paragraphs of `strategyqa_train_paragraphs.json`, if that file is
  beside the questions.
- FEVER (Thorne et al. 2018): the label is the answer. The passages are the pages of the Wikipedia dump, `wiki-*.jsonl`.
- ASQA (Stelmakh et al. 2022), also in the form of data hubs: the long answers count as right.
- CompMix (Christmann et al. 2024) and TimeQuestions (Jia et al. 2021): the answers are labels and values. A date with
  the time midnight also counts without the time. Other fields of a row are in `extra`.
- HotpotQA (Yang et al. 2018), 2WikiMultiHopQA (Ho et al. 2020), both also in the form of data hubs, and MuSiQue (Trivedi et
  al. 2022): a question has paragraphs, and those that support it are gold. Equal paragraphs are one passage, whose id is a
  hash of title and text.

Questions that have no id get the number of their row.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.formats.conversations import UNANSWERABLE
from langgraph_convcoa.datasets.queries import Entries, Query, passage
from langgraph_convcoa.datasets.rows import Row, json_document, text_lines
from langgraph_convcoa.errors import InputError

_DESCRIPTION = re.compile(r'\(description\s+(?:"((?:[^"\\]|\\.)*)"|([^()\s][^()]*?))\s*\)')
_ESCAPE = re.compile(r"\\(.)")
SOCIAL_ANSWERS = ("answerA", "answerB", "answerC")
TRUTHFULQA = {"Question", "Best Answer", "Correct Answers"}  # Columns of TruthfulQA.
TASK = "BIG-bench task"  # Key for the name of a task, which a BIG-bench file has at the top.
_KEPT = ("type", "level", "evidences", "question_decomposition")
_MIDNIGHT = "T00:00:00Z"
_LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
_CLAIM = "Does the evidence support or refute this claim? Answer SUPPORTS, REFUTES or NOT ENOUGH INFO."
PARAGRAPHS = "_paragraphs.json"  # Ending of the names of StrategyQA's paragraph files, which hold no questions.


def multiple_choice(row: Row, question: str, choices: Sequence[str], right: Sequence[int]) -> tuple[str, tuple[str, ...]]:
    """A question with its choices, in the form of Pan et al. 2024a, and the right choices, without and with their letters."""
    if len(choices) > len(ascii_uppercase):
        raise row.error(f"{len(choices)} choices, and only {len(ascii_uppercase)} letters for them.")
    bare = [choice.strip() for choice in choices]
    lettered = [f"({letter}) {choice}" for letter, choice in zip(ascii_uppercase, bare, strict=False)]
    references = [form[place] for form in (bare, lettered) for place in right]
    return " ".join([question.strip(), *lettered]), tuple(dict.fromkeys(references))


def is_webquestions(row: Row) -> bool:
    """Whether an object is a question of WebQuestions."""
    lists = isinstance(row.get("answers", row.get("answer")), list)
    plain = "question" in row and lists and row.keys() <= {"question", "answer", "answers", "url"}
    return plain or {"utterance", "targetValue"} <= row.keys()


def read_webquestions(row: Row) -> Entries:
    """A question of WebQuestions."""
    if "utterance" in row:
        question, answers = row.text("utterance"), _described(row)
    else:
        question, answers = row.text("question"), row.answers("answers" if "answers" in row else "answer")
    yield Query(_numbered("webquestions", row), question, references=answers)


def _described(row: Row) -> tuple[str, ...]:
    value = row.get("targetValue")
    if not isinstance(value, str) or not value.lstrip().startswith("(list"):
        raise row.error('`targetValue` must be as in (list (description "...")).')
    found = (_ESCAPE.sub(r"\1", quoted) or bare for quoted, bare in _DESCRIPTION.findall(value))
    return tuple(dict.fromkeys(text.strip() for text in found if text.strip()))


def read_bigbench(row: Row) -> Entries:
    """An example of a task of BIG-bench."""
    question = row.text("input").strip()
    if "target_scores" in row:
        scores = row.object("target_scores")
        if not scores or not all(isinstance(score, int | float) for score in scores.values()):
            raise row.error("`target_scores` must be an object of numbers.")
        # Many tasks write the right choice first. Sorted by a hash, the right choice is not always "(A)".
        choices = sorted(scores, key=lambda choice: hashlib.sha256(f"{question}\n{choice}".encode()).digest())
        best = max(scores.values())
        right = [place for place, choice in enumerate(choices) if scores[choice] == best and best > 0]
        question, references = multiple_choice(row, question, choices, right)
    else:
        references = row.answers("target")
    yield Query(f"{row[TASK]}-{row.number}", question, references=references, extra={"task": row[TASK]})


def join_labels(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of Social IQa, with the labels if the folder has their file. Raises InputError if their numbers differ."""
    file, number = path.with_name(f"{path.name.partition('.json')[0]}-labels.lst"), 0
    if not file.is_file():
        yield from rows
        return
    labels = [text.strip() for _, text in text_lines(file) if text.strip()]
    for number, row in enumerate(rows, 1):
        if number > len(labels):
            raise row.error(f"{file.name} has {len(labels)} labels, and none for this question.")
        row["correct"] = labels[number - 1]
        yield row
    if number < len(labels):
        raise InputError(f"{file}: {len(labels)} labels for the {number} questions of {path.name}.")


def read_socialiqa(row: Row) -> Entries:
    """A question of Social IQa, without an answer if there is no label."""
    label = str(row.get("correct") or row.get("label") or "").strip().upper()
    if label not in ("", *"ABC123"):
        raise row.error(f"the label must be 1 to 3 or A to C, not {label!r}.")
    right = ["ABC123".index(label) % 3] if label else []
    asked = f"{row.text('context').strip()} {row.text('question').strip()}"
    question, references = multiple_choice(row, asked, [row.text(key) for key in SOCIAL_ANSWERS], right)
    yield Query(_numbered("socialiqa", row), question, references=references)


def read_truthfulqa(row: Row) -> Entries:
    """A question of TruthfulQA; several answers in a field are separated by ";"."""
    columns = (row.optional(name).split(";") for name in ("Correct Answers", "Incorrect Answers"))
    correct, incorrect = ([part.strip() for part in parts if part.strip()] for parts in columns)
    best = row.optional("Best Answer").strip()
    yield Query(
        id=f"truthfulqa-{row.number}",
        question=row.text("Question"),
        references=tuple(dict.fromkeys([best, *correct] if best else correct)),
        extra={"category": row.get("Category", ""), "incorrect": incorrect},
    )


def join_paragraphs(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of StrategyQA with the paragraphs of the files in the same folder, by id."""
    paragraphs = {str(one.id): one for file in sorted(path.parent.glob(f"*{PARAGRAPHS}")) for one in _paragraphs(file)}
    for row in rows:
        row[PARAGRAPHS] = paragraphs
        yield row


def read_strategyqa(row: Row) -> Entries:
    """A question of StrategyQA, to be answered with yes or no, and the paragraphs of its evidence."""
    answer, paragraphs = row.get("answer"), row[PARAGRAPHS]
    if not isinstance(answer, bool | None):
        raise row.error("`answer` must be true or false.")
    gold = tuple(dict.fromkeys(identity for identity in _names(row.get("evidence")) if identity in paragraphs))
    yield from (paragraphs[identity] for identity in gold)
    extra = {key: row[key] for key in ("decomposition", "facts", "term") if key in row}
    yield Query(
        id=row.identity("qid"),
        question=row.text("question"),
        gold=gold,
        answer="" if answer is None else "yes" if answer else "no",
        extra=extra | UNANSWERABLE if paragraphs and not gold else extra,
    )


def _paragraphs(file: Path) -> Iterator[Document]:
    for identity, value in Row(json_document(file), str(file)).items():
        row = Row(value, f"{file}, paragraph {identity!r}")
        yield passage(identity, row.text("content"), row.optional("title"))


def _names(value: Any) -> Iterator[str]:
    """The strings in nested lists."""
    if isinstance(value, str):
        yield value
    for entry in value if isinstance(value, list) else ():
        yield from _names(entry)


def read_fever(row: Row) -> Entries:
    """A claim of FEVER as a question that names the labels."""
    label = row.optional("label")
    if label and label not in _LABELS:
        raise row.error(f"`label` must be one of {', '.join(_LABELS)}.")
    try:
        # A row without the inner lists raises an error.
        pages = [sentence[2] for group in row.get("evidence") or () for sentence in group]
    except (TypeError, IndexError, KeyError):
        raise row.error("`evidence` must be a list of lists of [annotation, evidence, page, sentence].") from None
    claim = row.text("claim").strip()
    yield Query(
        id=row.identity("id"),
        question=f"{claim} {_CLAIM}",
        gold=tuple(dict.fromkeys(page for page in pages if isinstance(page, str))),
        answer=label,
        extra={"claim": claim} | (UNANSWERABLE if label == _LABELS[2] else {}),
    )


def read_asqa(row: Row) -> Entries:
    """A question of ASQA; `extra["short_answers"]` has a list for each interpretation of the question."""
    long = (annotation.optional("long_answer").strip() for annotation in row.objects("annotations", optional=True))
    pairs = row.objects("qa_pairs", optional=True)
    yield Query(
        id=row.identity("sample_id"),
        question=row.text("ambiguous_question"),
        references=tuple(dict.fromkeys(answer for answer in long if answer)),
        split=row.optional("split"),
        extra={"short_answers": [list(pair.answers("short_answers")) for pair in pairs]},
    )


def read_compmix(row: Row) -> Entries:
    """A question of CompMix. If it has no id, it gets the number of its row."""
    key = next((name for name in ("question_id", "ques_id", "id") if name in row), None)
    answers = [label for answer in row.objects("answers") for label in answer.answers("label")]
    yield Query(
        id=f"compmix-{row.split}-{row.number}" if key is None else row.identity(key),
        question=row.text("question"),
        references=tuple(dict.fromkeys([*answers, *row.answers("answer_text")])),
        extra={name: row[name] for name in ("domain", "entities", "answer_src", "answers") if name in row},
    )


def read_timequestions(row: Row) -> Entries:
    """A question of TimeQuestions."""
    answers: list[str] = []
    for answer in row.objects("Answer"):
        value = answer.optional("AnswerArgument").strip()
        answers += [value.removesuffix(_MIDNIGHT), value] if value else answer.answers("WikidataLabel")
    yield Query(
        id=row.identity("Id"),
        question=row.text("Question"),
        references=tuple(dict.fromkeys(answers)),
        extra={name: row[name] for name in ("Temporal signal", "Temporal question type", "Data source") if name in row},
    )


def _numbered(name: str, row: Row) -> str:
    return "-".join(part for part in (name, row.split, str(row.number)) if part)


def read_hotpotqa(row: Row) -> Entries:
    """A question of HotpotQA or 2WikiMultiHopQA, and its paragraphs."""
    supporting = {title for title, _ in _pairs(row, "supporting_facts", "sent_id")}
    paragraphs = [
        (title, _text(row, sentences), title in supporting) for title, sentences in _pairs(row, "context", "sentences")
    ]
    return _multi_hop(row, "_id" if "_id" in row else "id", row.answers("answer"), paragraphs)


def read_musique(row: Row) -> Entries:
    """A question of MuSiQue, and its paragraphs; if they do not answer it, `extra["answerable"]` is False."""
    paragraphs = [
        (part.optional("title"), part.text("paragraph_text"), part.get("is_supporting") is True)
        for part in row.objects("paragraphs")
    ]
    if row.get("answerable", True) is False:
        return _multi_hop(row, "id", (), paragraphs, **UNANSWERABLE)
    return _multi_hop(row, "id", (*row.answers("answer"), *row.answers("answer_aliases")), paragraphs)


def _multi_hop(
    row: Row, key: str, references: Sequence[str], paragraphs: Iterable[tuple[str, str, bool]], **extra: Any
) -> Entries:
    """Yield the passages of a question, then the question. A paragraph is (title, text, whether it is gold)."""
    gold: dict[str, None] = {}
    for title, text, supporting in paragraphs:
        if text.strip():
            document = passage(hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16], text, title)
            gold |= {str(document.id): None} if supporting else {}
            yield document
    yield Query(
        id=row.identity(key),
        question=row.text("question"),
        gold=tuple(gold),
        references=tuple(dict.fromkeys(references)),
        extra={name: row[name] for name in _KEPT if name in row} | extra,
    )


def _pairs(row: Row, key: str, second: str) -> list[tuple[str, Any]]:
    """Pairs of a title and its value under `second`, from any of the published forms."""
    try:
        value = json.loads(row[key]) if isinstance(row[key], str) else row[key]
        if isinstance(value, dict):
            value = list(zip(value["title"], value[second], strict=True))
        pairs = [(title, other) for title, other in value]
        if all(isinstance(title, str) for title, _ in pairs):
            return pairs
    except (TypeError, ValueError, KeyError, RecursionError):
        pass
    raise row.error(f"`{key}` must be a list of [title, {second}] or an object of the lists `title` and `{second}`.")


def _text(row: Row, sentences: Any) -> str:
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise row.error("the sentences of `context` must be a list of strings.")
    return " ".join(sentence.strip() for sentence in sentences if sentence.strip())
