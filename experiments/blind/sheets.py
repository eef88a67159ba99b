"""Blind sheets: a run's answers for people to judge, without the methods' names.

Each judge gets a folder with a sheet, in a random order of items and answers, and a table to fill in. The table has marks on
the judge's `CRITERIA`, the rank of each answer within its item, and a reason.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.datasets.rows import json_lines
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import ANSWERED, Answered, references_of
from langgraph_convcoa.evaluation.runs.judging import CRITERIA
from langgraph_convcoa.text.citation_marks import without_marks

COLUMNS = ("item", "answer", *CRITERIA, "rank", "reason")
"""Columns of the table that a judge fills in. It has a row for each answer."""

KEY, SHEET, TABLE = "key.json", "sheet.md", "verdicts.csv"
"""The files of the sheets: which answer is whose, what a judge reads, and what a judge fills in."""

_TURNS, _PASSAGE = 3, 2_500
_HEAD = f"""# Answers to judge

Fill in `{TABLE}` beside this file, a row for each answer. Judge what the answer says to the one who asks, not how it is put.

- correct: 2 right, and what was asked; 1 partly; 0 wrong, or a refusal although the passages hold the answer
- complete: 2 all that the reference answers the question with; 1 a part; 0 hardly any of it
- faithful: 2 nothing that no passage supports; 1 an unsupported detail; 0 an unsupported or contradicted main statement
- concise: 2 nothing that the asker does not need; 1 some of that; 0 mostly that
- rank: 1 for the answer that you would rather have, 2 for the next; answers that are as good have the same rank
- reason: a few words on what decided
"""


@dataclass(frozen=True)
class Sheets:
    """The sheets that were made."""

    folder: Path
    methods: tuple[str, ...]
    items: int
    left_out: int  # questions that only some of the methods answered


def make_sheets(
    runs: Sequence[str | Path],
    data: str | Path,
    out: str | Path,
    *,
    methods: Sequence[str] = (),
    judges: int = 2,
    seed: int = 0,
) -> Sheets:
    """Write a sheet and a table for each judge, and `key.json`, which the judges must not see.

    Args:
        runs: Folders of runs of `evaluate_methods` over the same questions; a method counts from the first run that has it.
        data: The data set of the questions.
        out: A new or empty folder.
        methods: The methods to judge; all methods of the runs if none is named.
        judges: Number of judges.
        seed: Seed of the orders.

    Raises:
        InputError: A run or the data cannot be read, there are fewer than two methods, no question has an answer of all of
            them, or `out` is not empty.
    """
    out = Path(out)
    if judges < 1:
        raise InputError(f"judges must be at least 1, not {judges}.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already: name another folder, so that no verdict is lost")
    answers = _answers(runs, methods)
    chosen = tuple(methods) or tuple(answers)
    if missing := [name for name in chosen if name not in answers]:
        raise InputError(f"no run has answers of {missing[0]!r}; they have {', '.join(answers)}")
    if not 2 <= len(chosen) <= len(ascii_uppercase):
        raise InputError(f"there must be two methods or more to compare, not {len(chosen)}: name further runs")
    dataset = load_dataset(data, passages="optional")
    texts = {str(passage.id): passage.page_content for passage in dataset.corpus}
    asked = [query for query in dataset.queries if any(query.id in answers[name] for name in chosen)]
    whole = [
        query for query in asked if all(query.id in answers[name] and not answers[name][query.id].error for name in chosen)
    ]
    if not whole:
        raise InputError(f"no question of {data} has an answer of all of {', '.join(chosen)}")
    key: dict[str, Any] = {"methods": chosen, "judges": {}}
    for number in range(1, judges + 1):
        name, order = f"judge-{number}", random.Random(f"{seed} {number}")
        folder = out / name
        folder.mkdir(parents=True)
        items, rows = [], []
        for place, query in enumerate(order.sample(whole, len(whole)), 1):
            shuffled = order.sample(chosen, len(chosen))
            given = {letter: answers[method][query.id] for letter, method in zip(ascii_uppercase, shuffled, strict=False)}
            items.append(_item(place, query, texts, {letter: answer.answer for letter, answer in given.items()}))
            rows += [[str(place), letter, *[""] * (len(COLUMNS) - 2)] for letter in given]
            conversation = next(iter(given.values())).conversation
            key["judges"].setdefault(name, {})[str(place)] = {
                "id": query.id,
                "conversation": conversation,
                "answers": {letter: answer.method for letter, answer in given.items()},
            }
        (folder / SHEET).write_text("\n\n".join([_HEAD, *items]) + "\n", encoding="utf-8", newline="\n")
        with (folder / TABLE).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    (out / KEY).write_text(json.dumps(key, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return Sheets(out, chosen, len(whole), len(asked) - len(whole))


def _answers(runs: Sequence[str | Path], methods: Sequence[str]) -> dict[str, dict[str, Answered]]:
    """Answers by method and question."""
    answers: dict[str, dict[str, Answered]] = {}
    for run in map(Path, runs):
        file = run / "answers.jsonl"
        if not file.is_file():
            raise InputError(f"{run} holds no run: name the folder that convcoa evaluate qa wrote")
        own: dict[str, dict[str, Answered]] = {}
        for row in json_lines(file):
            try:
                one = ANSWERED.validate_python(dict(row))
            except ValueError as error:
                raise InputError(f"{row.where}: not an answer of a run") from error
            if one.method in methods or not methods:
                own.setdefault(one.method, {})[one.id] = one
        for name, of_method in own.items():
            answers.setdefault(name, of_method)
    return answers


def _item(number: int, query: Query, texts: Mapping[str, str], answers: Mapping[str, str]) -> str:
    said = "\n".join(f"> User: {question}\n>\n> Assistant: {reply}\n>" for question, reply in query.history[-_TURNS:])
    passages = "\n".join(f"- {' '.join(texts[id_].split())[:_PASSAGE]}" for id_ in query.gold if id_ in texts)
    parts = [
        f"## Item {number}",
        *([f"Conversation so far:\n\n{said}"] if said else []),
        f"**Question: {query.question}**",
        f"Reference: {' / '.join(references_of(query)) or '(none)'}",
        f"Passages that answer it:\n\n{passages or '(none)'}",
        *(f"### Answer {letter}\n\n{without_marks(text).strip() or '(empty)'}" for letter, text in answers.items()),
    ]
    return "\n\n".join(parts)
