"""The further tables of a run's report: rounds, verification, ratios, the judge, sweeps, models and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph_convcoa.evaluation.metrics.ratios import STATUSES
from langgraph_convcoa.evaluation.reports.figures import LAST_ROUND, MethodFigures
from langgraph_convcoa.evaluation.reports.tables import NAMES, Table, joined, percent, ratio, shown
from langgraph_convcoa.evaluation.runs.sweeps import SWEPT

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.reports.run import RunReport

_MODELS = "model"


def detail_tables(report: RunReport) -> list[Table]:
    """The tables for which there are figures."""
    made = [
        *(sweep_table(report, setting) for setting in SWEPT),
        sweep_table(report, _MODELS),
        round_table(report),
        verification_table(report),
        misled_table(report),
        contradiction_table(report),
        agreement_table(report),
        error_table(report),
    ]
    return [table for table in made if table is not None]


def sweep_table(report: RunReport, setting: str) -> Table | None:
    """Accuracy and time by the value of a setting (Pan et al. 2024b, tables 7 and 8), or by model (table 10)."""
    if setting == _MODELS:
        several = len({row.model for row in report.rows}) > 1
        wanted = {row.label: "" for row in report.rows if several and not row.swept}
        title, column = "Models", "method and model"
    else:
        wanted = {row.label: "" for row in report.rows if row.swept == setting}
        title, column = f"Sweep of {SWEPT[setting]}", f"method and {SWEPT[setting]}"
    chosen = [one for one in report.methods if one.method in wanted]
    if not chosen:
        return None
    columns = (column, NAMES[report.measure], "seconds", "model calls", "total tokens", "sub-questions")
    rows = tuple(
        (
            one.method,
            _right(report, one),
            f"{one.costs.seconds:.2f}",
            f"{one.costs.calls:.2f}",
            f"{one.costs.tokens:,.0f}",
            shown(one.sub_questions, 2),
        )
        for one in chosen
    )
    return Table(title, columns, rows)


def round_table(report: RunReport) -> Table | None:
    """Accuracy, time and tokens by round (Pan et al. 2024b, table 11); None where no question has a history."""
    numbers = sorted({entry.round for one in report.methods for entry in one.rounds})
    if len(numbers) < 2:
        return None
    rows = []
    for number in numbers:
        cells, most = [], 0
        for one in report.methods:
            entry = next((entry for entry in one.rounds if entry.round == number), None)
            if entry is None:
                cells.append("")
                continue
            most = max(most, entry.questions)
            cells.append(joined([shown(entry.right, 3), f"{entry.seconds:.2f} s", f"{entry.tokens:,.0f}"]))
        rows.append((f"{number} and later" if number == LAST_ROUND else str(number), f"{most:,}", *cells))
    note = (
        f"{NAMES[report.measure]} / seconds / tokens a question, by the rounds that the conversation has had with this one; "
        "the questions of one round are others than those of the next."
    )
    return Table("By round", ("round", "questions", *(one.method for one in report.methods)), tuple(rows), note)


def verification_table(report: RunReport) -> Table | None:
    """What became of the sub-questions."""
    chosen = [(one, one.verification) for one in report.methods if one.verification is not None]
    if not chosen:
        return None
    columns = ("method", "sub-questions", "a question", "with a guess", *STATUSES, "kept and right", "replaced though right")
    rows = tuple(
        (
            one.method,
            f"{found['items']:,}",
            shown(one.sub_questions, 2),
            ratio(found["guesses"], found["items"]),
            *(percent(found["counts"][status] / found["items"]) for status in STATUSES),
            ratio(found["kept_right"], found["kept_known"]),
            ratio(found["corrected_right"], found["corrected_known"]),
        )
        for one, found in chosen
    )
    note = (
        "Shares of the sub-questions by what became of them. Whether a guess is right is known where the sub-question is the "
        "question itself."
    )
    return Table("Verification", columns, rows, note)


def misled_table(report: RunReport) -> Table | None:
    """Right without retrieval and wrong with it (Pan et al. 2024a, table 5, Pan et al. 2024b, table 5)."""
    chosen = [(one, one.misled) for one in report.methods if one.misled is not None]
    if not chosen:
        return None
    columns = ("method", "misled", "of what the model knew", "helped")
    rows = tuple(
        (
            one.method,
            ratio(found["misled"], found["questions"]),
            ratio(found["misled"], found["known"]),
            ratio(found["helped"], found["questions"]),
        )
        for one, found in chosen
    )
    note = (
        f"misled: {NAMES[report.measure]} says right of closed-book and wrong of the method; helped: the other way round. "
        "The papers give no formula; this is one reading."
    )
    return Table("Misled by retrieval", columns, rows, note)


def contradiction_table(report: RunReport) -> Table | None:
    """Answers at odds with earlier ones (Pan et al. 2024b, table 6)."""
    chosen: list[tuple[MethodFigures, dict[str, Any]]] = [
        (one, one.contradictions) for one in report.methods if one.contradictions["answers"]
    ]
    if not chosen:
        return None
    rows = tuple(
        (one.method, ratio(found["contradicting"], found["answers"]), f"{found['comparable']:,}") for one, found in chosen
    )
    note = (
        "Answers that say another thing than an earlier one of the same conversation on the same question or sub-question, of "
        "the answers with earlier ones. Found by rule, without a model: less than a reader would find, and for methods with a "
        "chain there is more to compare."
    )
    return Table("Contradiction with earlier turns", ("method", "contradicting", "could be compared"), rows, note)


def agreement_table(report: RunReport) -> Table | None:
    """How far the judge agrees with exact match and cover-EM."""
    rows = tuple(
        (
            one.method,
            NAMES[str(found["measure"])],
            f"{found['answers']:,}",
            percent(found["share"]),
            shown(found["kappa"], 2),
            str(found["only_judge"]),
            str(found["only_measure"]),
        )
        for one in report.methods
        for found in one.agreement
    )
    if not rows:
        return None
    columns = ("method", "measure", "answers", "agree", "Cohen's kappa", "right for the judge alone", "for the measure alone")
    return Table("GPT-EM against the measures of strings", columns, rows)


def error_table(report: RunReport) -> Table | None:
    """Why questions failed."""
    rows = tuple((one.method, f"{count:,}", reason) for one in report.methods for reason, count in one.errors.items())
    return Table("Failures", ("method", "questions", "why"), rows) if rows else None


def _right(report: RunReport, one: MethodFigures) -> str:
    found = one.quality.get(report.measure)
    return "" if found is None else f"{found.mean:.3f}"
