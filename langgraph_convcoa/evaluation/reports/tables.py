"""The tables of a run's report: quality, costs, and what went wrong; as Markdown, as HTML's rows, and at a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import table as rich_table
from rich.text import Text

from langgraph_convcoa.cli.console import one_line

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.reports.run import RunReport

NAMES = {
    "em": "EM",
    "cover_em": "cover-EM",
    "f1": "F1",
    "rouge_l": "ROUGE-L",
    "bleu": "BLEU",
    "gpt_em": "GPT-EM",
}
"""How the papers call the measures."""

_CELL = 200


@dataclass(frozen=True)
class Table:
    """A table: the first column names the row, the others are figures.

    Attributes:
        title: Of the table.
        columns: Names of the columns.
        rows: Cells, as many as columns.
        note: What the figures are, in a sentence or two.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        r"""The table in Markdown; what a cell holds cannot end it.

        Example:
            >>> print(Table("Costs", ("method", "calls"), (("a|b", "2"),)).markdown())
            ## Costs
            <BLANKLINE>
            | method | calls |
            | --- | ---: |
            | a\|b | 2 |
        """
        cells = [self.columns, ("---", *["---:"] * (len(self.columns) - 1)), *self.rows]
        lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in cells]
        return "\n".join([f"## {self.title}", "", *([self.note, ""] if self.note else []), *lines])

    def __rich__(self) -> rich_table.Table:
        # Text, since a name may hold what rich takes for markup.
        shown = rich_table.Table(title=Text(self.title), caption=Text(self.note) if self.note else None)
        for place, name in enumerate(self.columns):
            shown.add_column(Text(name), justify="right" if place else "left", no_wrap=not place)
        for row in self.rows:
            shown.add_row(*(Text(one_line(cell)) for cell in row))
        return shown


def main_tables(report: RunReport) -> list[Table]:
    """The tables that are shown at a terminal too."""
    return [quality_table(report), cost_table(report), trouble_table(report)]


def quality_table(report: RunReport) -> Table:
    """Every measure of every row, the main one with its interval and test."""
    # The main measure has its columns even where no answer has it, as of a judge that never said yes or no.
    others = [name for name in NAMES if name != report.measure and any(name in one.quality for one in report.methods)]
    measures = [report.measure, *others]
    main = NAMES[report.measure]
    gold = any(one.gold_found is not None for one in report.methods)
    columns = ["method", main, "95%", "p", *(NAMES[name] for name in others), "corpus BLEU"]
    rows = []
    for one in report.methods:
        cells = []
        for name in measures:
            found = one.quality.get(name)
            cells.append("" if found is None else f"{found.mean:.3f}")
            if name == report.measure:
                cells += ["", ""] if found is None else [f"{found.low:.3f}-{found.high:.3f}", shown_p(found.p)]
        rows.append((one.method, *cells, shown(one.corpus_bleu, 3), *([shown(one.gold_found, 3)] if gold else [])))
    note = (
        f"95%: bootstrap over conversations; p: {main} against {report.baseline}, paired randomisation over conversations. "
        "A question that failed counts 0."
    )
    if gold:
        columns.append("gold found")
        note += " gold found: share of questions with a passage that answers them among those retrieved."
    return Table("Quality", tuple(columns), tuple(rows), note)


def cost_table(report: RunReport) -> Table:
    """Costs a question, in the shape of Pan et al. 2024b, table 4."""
    priced = report.prices is not None
    columns = ["method", "input tokens", "output tokens", "total tokens", "seconds", "retrievals", "model calls"]
    rows = []
    for one in report.methods:
        costs = one.costs
        tokens = (f"{value:,.0f}" for value in (costs.input_tokens, costs.output_tokens, costs.tokens))
        price = [shown(costs.price, 3)] if priced else []
        rows.append((one.method, *tokens, f"{costs.seconds:.2f}", f"{costs.retrievals:.2f}", f"{costs.calls:.2f}", *price))
    note = "Means over the questions, those that failed included. "
    if report.prices is not None:
        columns.append("price of 1,000 questions")
        note += f"Prices of a million tokens: {report.prices.input:g} in, {report.prices.output:g} out. "
    note += (
        "Seconds are wall time with several conversations at the same time, a reply that was kept counting what it took to "
        "come; the first method bears what is loaded and encoded once. A judge's calls are not in the table."
    )
    return Table("Costs per question", tuple(columns), tuple(rows), note)


def trouble_table(report: RunReport) -> Table:
    """What was asked, and what went wrong."""
    columns = ("method", "asked", "failed", "malformed replies", "in questions", "unjudged", "no known answer")
    rows = tuple(
        (
            one.method,
            *(
                f"{value:,}"
                for value in (
                    one.asked,
                    one.failed,
                    one.malformed,
                    one.malformed_questions,
                    one.unjudged,
                    one.without_reference,
                )
            ),
        )
        for one in report.methods
    )
    note = (
        "failed: the model or the method gave no answer. malformed: replies that were not as the method asks for them. "
        "unjudged: the judge said neither yes nor no. no known answer: counted in the costs alone."
    )
    return Table("What was asked, and what went wrong", columns, rows, note)


def shown(value: float | None, digits: int) -> str:
    """A figure; nothing where there is none.

    Example:
        >>> shown(0.5, 2), shown(None, 2)
        ('0.50', '')
    """
    return "" if value is None else f"{value:.{digits}f}"


def shown_p(value: float | None) -> str:
    """A p value.

    Example:
        >>> shown_p(0.0005), shown_p(0.25), shown_p(None)
        ('≤0.001', '0.250', '')
    """
    if value is None:
        return ""
    # Fewer draws than that were made.
    return "≤0.001" if value <= 0.001 else f"{value:.3f}"


def percent(share: float | None) -> str:
    """A share.

    Example:
        >>> percent(0.125), percent(None)
        ('12.5%', '')
    """
    return "" if share is None else f"{share:.1%}"


def ratio(part: int, whole: int) -> str:
    """A part of a whole with its share.

    Example:
        >>> ratio(1, 4), ratio(0, 0)
        ('1 of 4 (25.0%)', '')
    """
    return f"{part} of {whole} ({part / whole:.1%})" if whole else ""


def joined(cells: Sequence[str]) -> str:
    """The cells that hold something.

    Example:
        >>> joined(["0.50", "", "2 s"])
        '0.50 / 2 s'
    """
    return " / ".join(cell for cell in cells if cell)


def _cell(text: str) -> str:
    return one_line(text, _CELL).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
