"""The report of a run: its figures by method, read from the run's folder one method at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics.judge import JUDGED
from langgraph_convcoa.evaluation.reports.details import detail_tables
from langgraph_convcoa.evaluation.reports.figures import MethodFigures, Prices, Values, figures_of
from langgraph_convcoa.evaluation.reports.tables import Table, main_tables
from langgraph_convcoa.evaluation.runs.answered import Answered
from langgraph_convcoa.evaluation.runs.conversations import Drawn
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.sweeps import Variant

CLOSED_BOOK = "closed-book"
COVER = "cover_em"


@dataclass(frozen=True)
class RunReport:
    """What a run found.

    Attributes:
        settings: What was asked of whom, as in the run's folder.
        folder: Where the answers are.
        questions, conversations: How many are to be asked.
        left_out: Questions of conversations without any known answer, which are not asked.
        planned: Answers that there are to be.
        answered: Answers that there are.
        baseline: The row that the others are tested against.
        measure: What says right in the curves and ratios: the judge's verdict, cover-EM without a judge.
        methods: The figures of each row, in order; rows without an answer yet are left out.
        rows: What each row is.
        prices: Of a million tokens.
    """

    settings: dict[str, Any]
    folder: str
    questions: int
    conversations: int
    left_out: int
    planned: int
    answered: int
    baseline: str
    measure: str
    methods: tuple[MethodFigures, ...]
    rows: tuple[Variant, ...]
    prices: Prices | None = None

    @property
    def partial(self) -> bool:
        """Whether answers are missing."""
        return self.answered < self.planned

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {
            "settings": self.settings,
            "questions": self.questions,
            "conversations": self.conversations,
            "left_out": self.left_out,
            "planned": self.planned,
            "answered": self.answered,
            "partial": self.partial,
            "baseline": self.baseline,
            "measure": self.measure,
            "prices": None if self.prices is None else asdict(self.prices),
            "methods": {one.method: {k: v for k, v in one.to_dict().items() if k != "method"} for one in self.methods},
        }

    def tables(self) -> list[Table]:
        """All tables."""
        return [*main_tables(self), *detail_tables(self)]

    def __rich__(self) -> Group:
        return Group(*(table.__rich__() for table in main_tables(self)))


def report_of(
    folder: RunFolder,
    drawn: Drawn,
    rows: Sequence[Variant],
    *,
    baseline: str | None = None,
    judged: bool = False,
    prices: Prices | None = None,
    seed: int = 0,
) -> RunReport:
    """Compute the report of what the folder holds; the same answers give the same report, whatever their order there.

    Args:
        folder: The run.
        drawn: What is asked.
        rows: Who is asked, in the order of the report.
        baseline: The row to test the others against; the first when None.
        judged: Whether there is a judge.
        prices: Of tokens.
        seed: Of intervals and tests.

    Raises:
        InputError: There is no answer yet, or no row of the baseline's name.
    """
    labels = [row.label for row in rows]
    chosen = labels[0] if baseline is None else baseline
    if chosen not in labels:
        raise InputError(f"there is no row {chosen!r} to test against; choose from {', '.join(labels)}")
    order = {one.id: place for place, one in enumerate(q for c in drawn.conversations for q in c.questions)}
    places = folder.places()

    def answers_of(label: str) -> list[Answered]:
        return sorted(folder.answers_at(places.get(label, [])), key=lambda answer: order[answer.id])

    measure = JUDGED if judged else COVER
    against = Values.of(answers_of(chosen), order, judged) if chosen in places else None
    closed: dict[int, list[Answered]] = {}
    for row in rows:
        if row.method == CLOSED_BOOK and row.label in places:
            # Their chains and texts are not needed for the ratio.
            closed[row.model] = [replace(answer, answer="", question="", passages=()) for answer in answers_of(row.label)]
    figures = []
    for row in rows:
        if row.label not in places:
            continue
        answers = answers_of(row.label)
        figures.append(
            figures_of(
                row.label,
                answers,
                Values.of(answers, order, judged),
                baseline=None if row.label == chosen else against,
                closed_book=closed.get(row.model),
                measure=measure,
                prices=prices,
                seed=seed,
            )
        )
    if not figures:
        raise InputError(f"{folder.path} holds no answer yet: run it with a larger budget")
    return RunReport(
        settings=folder.settings,
        folder=str(folder.path),
        questions=drawn.questions,
        conversations=len(drawn.conversations),
        left_out=drawn.left_out,
        planned=drawn.questions * len(rows),
        answered=sum(one.asked for one in figures),
        baseline=chosen,
        measure=measure,
        methods=tuple(figures),
        rows=tuple(rows),
        prices=prices,
    )
