"""Tables, the base class of reports, and the report of a question-answering run with its figures and files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich import table as rich_table
from rich.console import Group
from rich.text import Text
from scipy import stats

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics import MEASURES, Sample, bootstrap_interval, paired_test, refuses
from langgraph_convcoa.evaluation.records import Answered, Costs, Questions, found_gold
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.judging import CRITERIA, MOST, Marked, Preference, Verdicts
from langgraph_convcoa.text.clean import one_line

_CELL = 200
_NAMES = {"em": "EM", "f1": "F1", "rouge_l": "ROUGE-L"}
_COSTS = {
    "calls": ("model calls", 2),
    "input_tokens": ("input tokens", 0),
    "output_tokens": ("output tokens", 0),
    "retrievals": ("retrievals", 2),
    "seconds": ("seconds", 2),
}
_TESTS = 1999
_ERRORS_SHOWN = 3


@dataclass(frozen=True)
class Table:
    """A table that is shown as Markdown, or at a terminal by rich."""

    title: str  # may be empty
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # explains the figures
    left: int = 1  # the number of columns at the left that hold text

    def markdown(self) -> str:
        """The table in Markdown. The text of a cell cannot end the table."""
        rules = ["---" if place < self.left else "---:" for place in range(len(self.columns))]
        lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in (self.columns, rules, *self.rows)]
        return "\n".join([*([f"## {self.title}", ""] if self.title else []), *([self.note, ""] if self.note else []), *lines])

    def __rich__(self) -> rich_table.Table:
        # `Text`, because rich would read a string as markup.
        shown = rich_table.Table(
            title=Text(self.title) if self.title else None, caption=Text(self.note) if self.note else None
        )
        for place, name in enumerate(self.columns):
            is_text = place < self.left
            shown.add_column(Text(name), justify="left" if is_text else "right", no_wrap=is_text)
        for row in self.rows:
            shown.add_row(*(Text(one_line(cell)) for cell in row))
        return shown


class Report:
    """Base of the dataclasses with the results of a measurement: `tables` for a person, `to_dict` for a program."""

    def tables(self) -> Sequence[Table]:
        """All tables, in the order in which they are read."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON data."""
        return asdict(cast(Any, self))

    def __rich__(self) -> Group:
        return Group(*self.tables())


def shown(value: float | None, digits: int = 3) -> str:
    """A figure; empty for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """A share in percent; empty for None."""
    return "" if share is None else f"{share:.1%}"


def _cell(text: str) -> str:
    return one_line(text, _CELL).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


@dataclass(frozen=True)
class Quality:
    """The mean of a measure over questions, and its 95% interval over conversations."""

    mean: float
    low: float
    high: float
    p: float | None  # p of a paired randomisation test against the first method; None for the first method
    questions: int


@dataclass(frozen=True)
class MarkFigures:
    """A method's marks."""

    means: dict[str, float]  # the mean mark for each criterion, 0 to 2
    total: Quality  # the sum of an answer's marks, 0 to 8
    right: float  # share of the answers with the full mark for "correct"
    malformed: int  # answers without readable marks; they do not count


@dataclass(frozen=True)
class PreferenceFigures:
    """How a method's answers compare with the first method's answers to the same questions."""

    wins: int
    ties: int
    losses: int
    malformed: int
    p: float | None  # p of a sign test of wins against losses


@dataclass(frozen=True)
class MethodFigures:
    """All figures of a method."""

    method: str
    asked: int  # number of questions, including those that failed
    failed: int
    errors: dict[str, int]  # the most frequent errors with their counts
    malformed: int  # number of the model's replies that are not in the form that the method asks for
    without_reference: int  # questions without a known answer; they count in the costs only
    refused: float  # share of plain refusals
    quality: dict[str, Quality]  # the figures for each measure; a question that failed counts 0
    gold_found: float | None  # share of questions for which a gold passage was retrieved
    costs: dict[str, float]  # mean costs of a question
    marks: MarkFigures | None = None
    preference: PreferenceFigures | None = None


@dataclass(frozen=True, kw_only=True)
class RunReport(Report):
    """The figures of a run by method. All other methods are tested against the first method."""

    methods: tuple[MethodFigures, ...]  # methods without an answer yet are left out
    settings: dict[str, Any]  # the settings in the run's folder
    folder: str
    questions: int
    conversations: int
    left_out: int  # questions of conversations without any known answer, which are not asked
    planned: int  # the number of answers of the whole run
    answered: int

    @property
    def partial(self) -> bool:
        """True if answers are missing."""
        return self.answered < self.planned

    def to_dict(self) -> dict[str, Any]:
        names = ("settings", "questions", "conversations", "left_out", "planned", "answered", "partial")
        methods = {one.method: {k: v for k, v in asdict(one).items() if k != "method"} for one in self.methods}
        return {name: getattr(self, name) for name in names} | {"methods": methods}

    def tables(self) -> list[Table]:
        made = [self._quality(), self._costs(), self._marks(), self._preferences(), self._troubles()]
        return [table for table in made if table.rows]

    def markdown(self) -> str:
        """The report in Markdown."""
        text = f"{self.questions:,} questions of {self.conversations:,} conversations, {len(self.methods)} methods."
        if self.partial:
            text += f" PARTIAL: {self.answered:,} of {self.planned:,} answers are there; the same command resumes the run."
        if self.left_out:
            text += f" {self.left_out:,} questions of conversations without any known answer were not asked."
        settings = f"## Settings\n\n```json\n{json.dumps(self.settings, indent=2, ensure_ascii=False)}\n```"
        title = f"# Question answering on {self.settings.get('data', 'data')}"
        return "\n\n".join([title, text, *(table.markdown() for table in self.tables()), settings]) + "\n"

    def _quality(self) -> Table:
        others = [name for name in _NAMES if any(name in one.quality for one in self.methods)]
        searched = ["gold found"] if any(one.gold_found is not None for one in self.methods) else []
        rows = []
        for one in self.methods:
            cover = one.quality.get("cover_em")
            means = [shown(one.quality[name].mean) if name in one.quality else "" for name in others]
            first = [shown(cover.mean), _interval(cover), _p(cover.p)] if cover else ["", "", ""]
            rows.append((one.method, *first, *means, percent(one.refused), *([percent(one.gold_found)] if searched else [])))
        columns = ("method", "cover-EM", "95%", "p", *(_NAMES[name] for name in others), "refused", *searched)
        note = (
            f"95%: bootstrap over conversations; p: cover-EM against {self._first}, paired randomisation over conversations. "
            "A question that failed, or a refusal, counts 0. gold found: a gold passage is among those retrieved."
        )
        return Table("Quality", columns, rows, note)

    def _costs(self) -> Table:
        rows = [
            (one.method, *(shown(one.costs[name], digits) for name, (_, digits) in _COSTS.items())) for one in self.methods
        ]
        note = (
            "Means over the questions, including those that failed. Seconds are wall time with several conversations at the "
            "same time; a cached reply counts with the time that it took at first. A judge's calls are not counted."
        )
        return Table("Costs per question", ("method", *(label for label, _ in _COSTS.values())), rows, note)

    def _marks(self) -> Table:
        rows = [
            (
                one.method,
                *(shown(one.marks.means[name], 2) for name in CRITERIA),
                shown(one.marks.total.mean, 2),
                _interval(one.marks.total, 2),
                _p(one.marks.total.p),
                percent(one.marks.right),
                str(one.marks.malformed),
            )
            for one in self.methods
            if one.marks is not None
        ]
        note = (
            f"From 0 to {MOST} each, by a judge who saw the conversation, the right answers and the gold passages, not the "
            "citations. correct: right, and what was asked; complete: all that the reference says; faithful: nothing that the "
            f"passages do not support; concise: nothing that the asker does not need. p: of the total against {self._first}. "
            "right: share of answers with the full mark for correct. unread: the judge's reply could not be read."
        )
        columns = ("method", *CRITERIA, f"total of {MOST * len(CRITERIA)}", "95%", "p", "right", "unread")
        return Table("Marks of the judge", columns, rows, note)

    def _preferences(self) -> Table:
        rows = [
            (one.method, *(f"{n:,}" for n in (found.wins, found.ties, found.losses)), _p(found.p), str(found.malformed))
            for one in self.methods
            if (found := one.preference) is not None
        ]
        note = f"Which answer is better, the method's or that of {self._first}. p: sign test of wins against losses."
        return Table(f"Preferred to {self._first}", ("method", "wins", "ties", "losses", "p", "unread"), rows, note)

    def _troubles(self) -> Table:
        rows = [
            (
                one.method,
                *(f"{n:,}" for n in (one.asked, one.failed, one.malformed, one.without_reference)),
                *[*one.errors, ""][:1],
            )
            for one in self.methods
        ]
        columns = ("method", "asked", "failed", "malformed replies", "no known answer", "commonest failure")
        note = "no known answer: counted in the costs only."
        return Table("What was asked, and what went wrong", columns, rows, note)

    @property
    def _first(self) -> str:
        return str(self.settings["methods"][0])


def write_report(report: RunReport, folder: str | Path) -> None:
    """Write `report.md` and `report.json` into a folder that exists."""
    text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n"
    try:
        for name, content in (("report.md", report.markdown()), ("report.json", text)):
            (Path(folder) / name).write_text(content, encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise InputError(f"the report cannot be written to {folder} ({error.strerror}): name another folder") from error


def report_of(
    folder: RunFolder, questions: Questions, methods: Sequence[str], verdicts: Verdicts | None = None, *, seed: int = 0
) -> RunReport:
    """Compute the report of a folder's answers, which may be in any order. The methods are tested against the first."""
    order = {one.id: place for place, one in enumerate(q for c in questions.conversations for q in c.questions)}
    answers: dict[str, list[Answered]] = {name: [] for name in methods}
    for answer in folder.answers(methods):
        answers[answer.method].append(answer)
    for given in answers.values():
        given.sort(key=lambda answer: order[answer.id])
    if not any(answers.values()):
        raise InputError(f"{folder.path} holds no answer yet: run it with a larger budget")
    figures = [_figures_of(name, answers, verdicts or Verdicts(), seed) for name in methods if answers[name]]
    return RunReport(
        methods=tuple(figures),
        settings=folder.settings,
        folder=str(folder.path),
        questions=len(questions),
        conversations=len(questions.conversations),
        left_out=questions.left_out,
        planned=len(questions) * len(methods),
        answered=sum(one.asked for one in figures),
    )


def _figures_of(method: str, answers: Mapping[str, Sequence[Answered]], verdicts: Verdicts, seed: int) -> MethodFigures:
    """The figures of a method, tested against those of the first method in `answers`."""
    own, first = answers[method], next(iter(answers))
    known = [answer for answer in own if answer.references]
    given = [answer for answer in own if not answer.error]
    searched = [found_gold(answer.passages, answer.gold) for answer in given if answer.gold]
    retrieves = any(answer.passages or answer.costs.retrievals for answer in own)
    reasons = Counter(answer.error for answer in own if answer.error)
    mine, firsts = ([one for one in verdicts.marks if one.method == name] for name in (method, first))
    return MethodFigures(
        method=method,
        asked=len(own),
        failed=reasons.total(),
        errors=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_ERRORS_SHOWN]),
        malformed=sum(answer.malformed for answer in own),
        without_reference=len(own) - len(known),
        refused=sum(refuses(answer.answer) for answer in given) / max(1, len(given)),
        quality={
            name: _quality_of(_values(own, name), None if method == first else _values(answers[first], name), seed)
            for name in MEASURES
            if any(name in answer.metrics for answer in known)
        },
        gold_found=float(np.mean(searched)) if searched and retrieves else None,
        costs={name: float(np.mean([getattr(answer.costs, name) for answer in own])) for name in vars(Costs())},
        marks=mark_figures(mine, None if method == first else firsts, seed),
        preference=None if method == first else preference_figures(method, verdicts.preferences),
    )


def _quality_of(
    values: Mapping[str, tuple[str, float]], others: Mapping[str, tuple[str, float]] | None = None, seed: int = 0
) -> Quality:
    """Mean, interval and test. `values` has each question's conversation and value; `others` has those of the first method."""
    column = np.array([[value] for _, value in values.values()])
    low, high = bootstrap_interval([Sample(column, [conversation for conversation, _ in values.values()])], seed=seed)
    p = None
    if others is not None and (both := [id_ for id_ in values if id_ in others]):
        less = np.array([[values[id_][1] - others[id_][1]] for id_ in both])
        p = float(paired_test([Sample(less, [values[id_][0] for id_ in both])], resamples=_TESTS, seed=seed)[0])
    return Quality(float(column.mean()), float(low[0]), float(high[0]), p, len(values))


def mark_figures(marked: Sequence[Marked], first: Sequence[Marked] | None = None, seed: int = 0) -> MarkFigures | None:
    """The marks of a method, tested against those of the first method; None if no reply could be read."""
    known = [one.marks for one in marked if one.marks is not None]
    if not known:
        return None

    def totals(given: Sequence[Marked]) -> dict[str, tuple[str, float]]:
        return {one.id: (one.conversation, float(one.marks.total)) for one in given if one.marks is not None}

    means = {name: float(np.mean([getattr(marks, name) for marks in known])) for name in CRITERIA}
    right = sum(marks.correct == 2 for marks in known) / len(known)
    total = _quality_of(totals(marked), None if first is None else totals(first), seed)
    return MarkFigures(means, total, right, len(marked) - len(known))


def preference_figures(method: str, preferences: Sequence[Preference]) -> PreferenceFigures | None:
    """The wins and losses of a method against the first method; None if no answers were compared."""
    pairs = [one for one in preferences if method in (one.first, one.second)]
    if not pairs:
        return None
    wins = sum(one.better == method for one in pairs)
    ties = sum(one.better == "" for one in pairs)
    malformed = sum(one.better is None for one in pairs)
    losses = len(pairs) - wins - ties - malformed
    p = float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else None
    return PreferenceFigures(wins, ties, losses, malformed, p)


def _values(answers: Sequence[Answered], measure: str) -> dict[str, tuple[str, float]]:
    """Conversation and value of each question with a known answer. The value is 0 if the question failed."""
    return {
        answer.id: (answer.conversation, 0.0 if answer.error else answer.metrics[measure])
        for answer in answers
        if answer.references and (answer.error or measure in answer.metrics)
    }


def _interval(found: Quality, digits: int = 3) -> str:
    return f"{found.low:.{digits}f}-{found.high:.{digits}f}"


def _p(value: float | None) -> str:
    """A p value for a table. Values below 0.001 are not shown: the number of draws is too small for them."""
    return "≤0.001" if value is not None and value <= 0.001 else shown(value)
