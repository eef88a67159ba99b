"""A run's report as files: Markdown with pictures beside it, one HTML page that holds everything, and JSON."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.plots import Plot, plots_of

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.reports.run import RunReport

_TEMPLATE = "page.html"


def write_report(report: RunReport, folder: str | Path) -> list[Path]:
    """Write `report.md`, `report.html`, `report.json` and the pictures of the first.

    Args:
        report: What was found.
        folder: Where to; it exists.

    Returns:
        The three files, in that order.

    Raises:
        InputError: They cannot be written.
    """
    place = Path(folder)
    plots = plots_of(report)
    texts = {
        "report.md": markdown(report, plots),
        "report.html": html(report, plots),
        "report.json": json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n",
    }
    try:
        for plot in plots:
            (place / f"{plot.name}.png").write_bytes(plot.png)
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"the report cannot be written to {place} ({error.strerror}): name another folder") from error
    return [place / name for name in texts]


def markdown(report: RunReport, plots: list[Plot]) -> str:
    """The report in Markdown; its pictures are files beside it."""
    parts = [f"# {title_of(report)}", summary_of(report)]
    parts += [f"![{plot.title}]({plot.name}.png)" for plot in plots]
    parts += [table.markdown() for table in report.tables()]
    parts += ["## Settings", f"```json\n{json.dumps(report.settings, indent=2, ensure_ascii=False)}\n```"]
    return "\n\n".join(parts) + "\n"


def html(report: RunReport, plots: list[Plot]) -> str:
    """The report as one page without scripts, which needs nothing from elsewhere."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8"))
    pictures = [{"title": plot.title, "data": base64.b64encode(plot.png).decode()} for plot in plots]
    settings = {name: value if isinstance(value, str) else json.dumps(value) for name, value in report.settings.items()}
    return template.render(
        title=title_of(report), summary=summary_of(report), pictures=pictures, tables=report.tables(), settings=settings
    )


def title_of(report: RunReport) -> str:
    """What was asked, in a line."""
    return f"Question answering on {report.settings.get('data', 'data')}"


def summary_of(report: RunReport) -> str:
    """What the figures are of, in a few sentences."""
    text = f"{report.questions:,} questions of {report.conversations:,} conversations, {len(report.rows)} methods."
    if report.partial:
        text += (
            f" This report is PARTIAL: {report.answered:,} of {report.planned:,} answers are there; the same command goes on "
            "where the run stopped."
        )
    if report.left_out:
        text += f" {report.left_out:,} questions of conversations without any known answer were not asked."
    if not plots_available():
        text += " There are no plots, since matplotlib is not installed."
    return text


def plots_available() -> bool:
    """Whether pictures can be drawn."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None
