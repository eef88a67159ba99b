"""The report of a question-answering run, computed from the run's folder one method at a time, and its files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.registry import CLOSED_BOOK
from langgraph_convcoa.evaluation.metrics.judge import JUDGED
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.reports.figures import Prices, RunFigures, Values, figures_of
from langgraph_convcoa.evaluation.reports.judged import mark_figures, preference_figures
from langgraph_convcoa.evaluation.reports.kit import Page, Report, Table, can_draw
from langgraph_convcoa.evaluation.reports.plots import plots_of
from langgraph_convcoa.evaluation.reports.tables import detail_tables, main_tables
from langgraph_convcoa.evaluation.runs.conversations import Drawn
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.judging import Judged
from langgraph_convcoa.evaluation.runs.sweeps import Variant


@dataclass(frozen=True, kw_only=True)
class RunReport(RunFigures, Report):
    """A run with its figures."""

    settings: dict[str, Any]  # what was asked of whom, as in the run's folder
    folder: str  # where the answers are
    questions: int  # how many are to be asked
    conversations: int
    left_out: int  # questions of conversations without any known answer, which are not asked
    planned: int  # how many answers there are to be
    answered: int

    @property
    def partial(self) -> bool:
        """Whether answers are missing."""
        return self.answered < self.planned

    def to_dict(self) -> dict[str, Any]:
        names = ("settings", "questions", "conversations", "left_out", "planned", "answered", "partial", "baseline", "measure")
        return {name: getattr(self, name) for name in names} | {
            "prices": None if self.prices is None else asdict(self.prices),
            "methods": {one.method: {k: v for k, v in asdict(one).items() if k != "method"} for one in self.methods},
        }

    def tables(self) -> list[Table]:
        return [*main_tables(self), *detail_tables(self)]

    def __rich__(self) -> Group:
        return Group(*main_tables(self))

    def page(self) -> Page:
        """The report to read."""
        text = f"{self.questions:,} questions of {self.conversations:,} conversations, {len(self.rows)} methods."
        if self.partial:
            text += (
                f" This report is PARTIAL: {self.answered:,} of {self.planned:,} answers are there; the same command resumes "
                "the run."
            )
        if self.left_out:
            text += f" {self.left_out:,} questions of conversations without any known answer were not asked."
        if not can_draw():
            text += " There are no plots, since matplotlib is not installed."
        title = f"Question answering on {self.settings.get('data', 'data')}"
        return Page(title, text, self.tables(), plots_of(self), self.settings)


def write_report(report: RunReport, folder: str | Path) -> list[Path]:
    """Write `report.md` with its pictures, `report.html` and `report.json` into a folder that exists."""
    places = [Path(folder) / f"report.{ending}" for ending in ("md", "html", "json")]
    page = report.page()
    for place in places[:2]:
        page.save(place)
    text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"
    try:
        places[2].write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"the report cannot be written to {folder} ({error.strerror}): name another folder") from error
    return places


def report_of(
    folder: RunFolder,
    drawn: Drawn,
    rows: Sequence[Variant],
    *,
    judged: bool = False,
    verdicts: Judged | None = None,
    prices: Prices | None = None,
    seed: int = 0,
) -> RunReport:
    """Compute the report of what the folder holds; the same answers give the same report, whatever their order there.

    The rows are in the order of the report; the others are tested against the first. `verdicts` are a judge's marks and
    preferences (`judge_run`).
    """
    order = {one.id: place for place, one in enumerate(q for c in drawn.conversations for q in c.questions)}
    places = folder.places()
    present = [row for row in rows if row.label in places]
    if not present:
        raise InputError(f"{folder.path} holds no answer yet: run it with a larger budget")

    def answers_of(label: str) -> list[Answered]:
        return sorted(folder.answers_at(places[label]), key=lambda answer: order[answer.id])

    measure, first = JUDGED if judged else "cover_em", rows[0].label
    against = Values.of(answers_of(first), order, judged) if first in places else None
    # Their chains and texts are not needed for the ratio.
    closed = {
        row.model: [replace(answer, answer="", question="", passages=()) for answer in answers_of(row.label)]
        for row in present
        if row.method == CLOSED_BOOK
    }
    figures = []
    for row in present:
        answers = answers_of(row.label)
        one = figures_of(
            row.label,
            answers,
            Values.of(answers, order, judged),
            baseline=None if row.label == first else against,
            closed_book=closed.get(row.model),
            measure=measure,
            prices=prices,
            seed=seed,
        )
        if verdicts is not None:
            mine, firsts = ([each for each in verdicts.marks if each.method == name] for name in (row.label, first))
            one = replace(
                one,
                marks=mark_figures(mine, None if row.label == first else firsts, seed),
                preference=None if row.label == first else preference_figures(row.label, verdicts.preferences),
            )
        figures.append(one)
    return RunReport(
        settings=folder.settings,
        folder=str(folder.path),
        questions=drawn.questions,
        conversations=len(drawn.conversations),
        left_out=drawn.left_out,
        planned=drawn.questions * len(rows),
        answered=sum(one.asked for one in figures),
        baseline=first,
        measure=measure,
        methods=tuple(figures),
        rows=tuple(rows),
        prices=prices,
    )
