"""Scores of blind sheets: how the judges rated each method, and how far they agree."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from experiments.blind.sheets import KEY, TABLE
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import (
    MarkFigures,
    PreferenceFigures,
    Report,
    Table,
    mark_figures,
    preference_figures,
    shown,
)
from langgraph_convcoa.evaluation.runs.judging import CRITERIA, MOST, Marked, Marks, Preference

_OPENED = "judgements.jsonl"


@dataclass(frozen=True)
class Judgement:
    """The marks of a judge for an answer, and the method that gave the answer."""

    judge: str
    sheets: str  # the folder
    id: str  # id of the question
    conversation: str
    method: str
    place: int  # place of the answer in its item, from 0
    marks: Marks
    rank: int


@dataclass(frozen=True)
class BlindReport(Report):
    """Figures over all judges of one or several folders of sheets."""

    methods: tuple[str, ...]
    judges: tuple[str, ...]
    questions: int
    unjudged: int  # answers whose rows were left empty
    marks: dict[str, MarkFigures]
    pairs: dict[str, dict[str, PreferenceFigures]]  # preferences of the row over the column, by rank
    agreement: list[dict[str, Any]]  # for each pair of judges

    def tables(self) -> list[Table]:
        first = self.methods[0]
        rows = [
            (
                method,
                *(shown(one.means[name], 2) for name in CRITERIA),
                shown(one.total.mean, 2),
                f"{one.total.low:.2f}-{one.total.high:.2f}",
                shown(one.total.p),
                f"{one.total.questions:,}",
            )
            for method, one in self.marks.items()
        ]
        note = (
            f"Each criterion from 0 to {MOST}; {self.questions:,} questions, judged by {', '.join(self.judges)}. 95%: "
            f"bootstrap over conversations; p: of the total against {first}, paired randomisation over conversations."
        )
        if self.unjudged:
            note += f" PARTIAL: {self.unjudged:,} answers are not judged yet."
        marks = Table("Marks", ("method", *CRITERIA, f"total of {MOST * len(CRITERIA)}", "95%", "p", "judgements"), rows, note)
        matrix = [
            (
                method,
                *(
                    f"{one.wins} / {one.ties} / {one.losses}" if (one := self.pairs[method].get(other)) else ""
                    for other in self.methods
                ),
            )
            for method in self.methods
        ]
        note = "How often the row's answer was ranked above, beside and below the column's: wins / ties / losses."
        preferred = Table("Preferred", ("method", *self.methods), matrix, note)
        between = [
            (
                f"{one['judges'][0]}, {one['judges'][1]}",
                *(shown(one[name], 2) for name in ("preferences", "totals", "difference")),
            )
            for one in self.agreement
        ]
        note = "Shares of pairs with the same verdict and of answers with the same total, and the mean difference of totals."
        agreement = Table("Agreement", ("judges", "same preference", "same total", "difference"), between, note)
        return [table for table in (marks, preferred, agreement) if table.rows]


def score_sheets(folders: Sequence[str | Path], *, seed: int = 0) -> BlindReport:
    """Read the filled tables of folders that `make_sheets` made; each gets a `judgements.jsonl` with the methods' names.

    Raises:
        InputError: A folder holds no sheets, a row is filled in part or wrongly (file and line are named), the folders compare
        different methods, or no row is filled.
    """
    found: list[Judgement] = []
    methods: tuple[str, ...] = ()
    unjudged = 0
    for folder in dict.fromkeys(map(Path, folders)):
        key = _key(folder)
        if methods and set(key["methods"]) != set(methods):
            raise InputError(f"{folder} compares {', '.join(key['methods'])}, not {', '.join(methods)}: score it alone")
        methods = methods or tuple(key["methods"])
        judged = [one for name, items in key["judges"].items() for one in _read(folder, name, items)]
        there = [one for one in judged if one is not None]
        unjudged += len(judged) - len(there)
        lines = [json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in there]
        (folder / _OPENED).write_text("".join(lines), encoding="utf-8", newline="\n")
        found += there
    if not found:
        raise InputError(f"nothing is judged yet: fill in {TABLE} beside the sheets")
    marked = {
        method: [
            Marked(method, f"{one.judge} {one.sheets} {one.id}", one.conversation, one.marks)
            for one in found
            if one.method == method
        ]
        for method in methods
    }
    figures = {
        method: mark_figures(marked[method], marked[methods[0]] if place else None, seed)
        for place, method in enumerate(methods)
    }
    preferences = _preferences(found)
    pairs: dict[str, dict[str, PreferenceFigures]] = {method: {} for method in methods}
    for one, other in combinations(methods, 2):
        between = [each for _, each in preferences if {each.first, each.second} == {one, other}]
        for row, column in ((one, other), (other, one)):
            if (of_row := preference_figures(row, between)) is not None:
                pairs[row][column] = of_row
    return BlindReport(
        methods=methods,
        judges=tuple(sorted({one.judge for one in found})),
        questions=len({(one.sheets, one.id) for one in found}),
        unjudged=unjudged,
        marks={method: one for method, one in figures.items() if one is not None},
        pairs=pairs,
        agreement=_agreement(found, preferences),
    )


def _key(folder: Path) -> dict[str, Any]:
    try:
        key = json.loads((folder / KEY).read_text(encoding="utf-8"))
        return {"methods": list(key["methods"]), "judges": dict(key["judges"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} holds no blind sheets: run python -m experiments.blind sheets RUN DATA {folder}"
        ) from error


def _read(folder: Path, judge: str, items: Mapping[str, Any]) -> Iterator[Judgement | None]:
    """The rows of a judge's table; None for a row that is still empty."""
    path = folder / judge / TABLE
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    seen = set()
    for line, row in enumerate(rows, 2):
        fields = {
            str(name).strip().lower(): (value or "").strip() for name, value in row.items() if isinstance(value, str | None)
        }
        item, letter = items.get(fields.get("item", "")), fields.get("answer", "").upper()
        if item is None or letter not in item["answers"] or (fields["item"], letter) in seen:
            raise InputError(f"{path}, line {line}: item and answer must be as they were, each once")
        seen.add((fields["item"], letter))
        figures = [fields.get(name, "") for name in (*CRITERIA, "rank")]
        if not any(figures):
            yield None
            continue
        if any(mark not in ("0", "1", "2") for mark in figures[:-1]) or not (figures[-1].isdecimal() and int(figures[-1])):
            raise InputError(f"{path}, line {line}: {', '.join(CRITERIA)} are 0, 1 or 2, and rank is 1 or more")
        marks = Marks(**{name: int(fields[name]) for name in CRITERIA}, reason=fields.get("reason", ""))
        place = list(item["answers"]).index(letter)
        yield Judgement(
            judge, str(folder), item["id"], item["conversation"], item["answers"][letter], place, marks, int(figures[-1])
        )
    yield from [None] * (sum(len(item["answers"]) for item in items.values()) - len(seen))


def _preferences(found: Sequence[Judgement]) -> list[tuple[str, Preference]]:
    """For each pair of answers to an item, the judge and the verdict by their ranks."""
    items: dict[tuple[str, str, str], list[Judgement]] = {}
    for one in found:
        items.setdefault((one.judge, one.sheets, one.id), []).append(one)
    preferences = []
    for (judge, sheets, id_), answers in items.items():
        for one, other in combinations(sorted(answers, key=lambda answer: answer.place), 2):
            better = "" if one.rank == other.rank else min(one, other, key=lambda answer: answer.rank).method
            preferences.append((judge, Preference(f"{sheets} {id_}", one.conversation, one.method, other.method, better)))
    return preferences


def _agreement(found: Sequence[Judgement], preferences: Sequence[tuple[str, Preference]]) -> list[dict[str, Any]]:
    agreement = []
    for two in combinations(sorted({one.judge for one in found}), 2):
        totals = [{(one.sheets, one.id, one.method): one.marks.total for one in found if one.judge == judge} for judge in two]
        better = [
            {(one.id, frozenset((one.first, one.second))): one.better for name, one in preferences if name == judge}
            for judge in two
        ]
        answers, pairs = totals[0].keys() & totals[1].keys(), better[0].keys() & better[1].keys()
        if answers:
            less = [abs(totals[0][answer] - totals[1][answer]) for answer in answers]
            same = [better[0][pair] == better[1][pair] for pair in pairs]
            agreement.append(
                {
                    "judges": two,
                    "answers": len(answers),
                    "preferences": sum(same) / len(same) if same else None,
                    "totals": sum(each == 0 for each in less) / len(less),
                    "difference": sum(less) / len(less),
                }
            )
    return agreement
