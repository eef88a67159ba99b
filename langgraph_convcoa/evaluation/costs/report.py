"""The costs of methods as a file to read: Markdown or HTML with the table, and the curves as a picture."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.costs.measure import HEADINGS, LIMITS, CostsReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Costs under one script</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222 }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right }}
th {{ border-bottom: 2px solid #888 }} img {{ max-width: 100% }}
</style></head><body>
{body}
</body></html>
"""
_LINES = ("-", "--", ":", "-.")
_MARKS = ("o", "s", "^", "D", "v", "x")


def write_report(report: CostsReport, path: str | Path) -> None:
    """Write the table, as HTML with the curves where the file's name ends so, else as Markdown.

    Raises:
        InputError: The name ends in neither .md nor .html, the file cannot be written, or matplotlib is missing for HTML.
    """
    path = Path(path)
    check_report_path(path)
    text = markdown(report)
    if path.suffix.lower() != ".md":
        from markdown_it import MarkdownIt

        buffer = io.BytesIO()
        draw(report).savefig(buffer, format="png", dpi=110)
        picture = base64.b64encode(buffer.getvalue()).decode()
        curves = (
            f'<p><img alt="Model calls and tokens against the length of the chain" src="data:image/png;base64,{picture}"></p>'
        )
        text = _PAGE.format(body=MarkdownIt("commonmark").enable("table").render(text) + curves)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"the report cannot be written to {path}: {error.strerror}") from None


def check_report_path(path: Path) -> None:
    """See that a report can be written, before minutes are spent on it.

    Raises:
        InputError: The name ends in neither .md nor .html, or the folder does not exist.
    """
    if path.suffix.lower() not in (".md", ".html", ".htm"):
        raise InputError(f"a report is a .md or .html file, not {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"the report cannot be written: there is no folder {path.parent}")


def markdown(report: CostsReport) -> str:
    """The report as Markdown: what was counted, the table, the limits."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "|".join(":---" if h == "method" else "---:" for h in HEADINGS) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for cells in report.cells()]
    questions = sorted({row.questions for row in report.rows})
    how_many = f"{questions[0]}" if len(questions) == 1 else f"{questions[0]} to {questions[-1]}"
    return "\n".join(
        [
            "# Costs under one script",
            "",
            f"Means a question, of {how_many} questions a row; {report.k} passages a search. The columns are the share of "
            "right guesses, the sub-questions of a question (n), tokens, searches, model calls, the fewest and most of these.",
            "",
            *lines,
            "",
            LIMITS,
            "",
        ]
    )


def plot(report: CostsReport, path: str | Path) -> None:
    """Draw the curves into a picture.

    Raises:
        InputError: matplotlib is not installed, or the picture cannot be written.
    """
    try:
        draw(report).savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise InputError(f"The picture cannot be written to {path}: {error}.") from None


def draw(report: CostsReport) -> Figure:
    """Model calls, and tokens, against n: one picture a share of right guesses, one line a method.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise InputError("matplotlib is not installed; pip install matplotlib, or give a .md report and no --plot.") from None
    methods = list(dict.fromkeys(row.method for row in report.rows))
    shares = sorted({row.right_share for row in report.rows})
    figure = Figure(figsize=(1.2 + 3.3 * len(shares), 6.2), layout="constrained")
    grid = figure.subplots(2, len(shares), sharex=True, sharey="row", squeeze=False)
    for line, (name, label) in enumerate([("calls", "model calls a question"), ("total_tokens", "tokens a question")]):
        for axes, share in zip(grid[line], shares, strict=True):
            for number, method in enumerate(methods):
                rows = [row for row in report.rows if row.method == method and row.right_share == share]
                points = sorted((row.sub_questions, getattr(row, name)) for row in rows)
                # Methods that cost the same lie on one another: dashes and marks let the one below be seen.
                axes.plot(
                    [n for n, _ in points],
                    [value for _, value in points],
                    color=f"C{number % 10}",
                    linestyle=_LINES[number % len(_LINES)],
                    marker=_MARKS[number % len(_MARKS)],
                    fillstyle="none",
                    linewidth=2.4 if method == "ours" else 1.5,
                    label=method,
                )
            axes.set_ylim(0, None)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(visible=True, alpha=0.3)
            if line == 0:
                axes.set_title(f"{share:.0%} of the guesses right")
            else:
                axes.set_xlabel("sub-questions of a question")
        grid[line][0].set_ylabel(label)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(methods), 4))
    return figure
