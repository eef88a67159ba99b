"""The plots of a run's report: quality with intervals, tokens a question, and the curve by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.evaluation.reports.tables import NAMES
from langgraph_convcoa.evaluation.runs.sweeps import OURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from langgraph_convcoa.evaluation.reports.figures import MethodFigures
    from langgraph_convcoa.evaluation.reports.run import RunReport

MOST_LINES = 8
"""More lines in one plot than this cannot be told apart; the first rows are drawn, and ours."""

_INK, _BAR, _SECOND = "#1f2933", "#2b6cb0", "#a0c4e8"
_WIDTH = 8.0
_SHARES = (-0.02, 1.02)
"""The axis of a share: marks and lines at its ends are seen whole."""


@dataclass(frozen=True)
class Plot:
    """A picture.

    Attributes:
        name: Of its file, without an ending.
        title: What it shows; also what is said in its place.
        png: The picture.
    """

    name: str
    title: str
    png: bytes


def plots_of(report: RunReport) -> list[Plot]:
    """The pictures of a report; none where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    drawn = [_plot("quality", f"{NAMES[report.measure]} with 95% intervals", report, _quality, Figure)]
    drawn.append(_plot("costs", "Tokens and model calls per question", report, _costs, Figure))
    if len({entry.round for one in report.methods for entry in one.rounds}) > 1:
        drawn.append(_plot("rounds", f"{NAMES[report.measure]} and seconds by round", report, _rounds, Figure))
    return drawn


def _plot(name: str, title: str, report: RunReport, draw: Callable[[RunReport, Any], Figure], figure: type[Figure]) -> Plot:
    made = draw(report, figure)
    out = BytesIO()
    # Without the version of the program, so that the same figures give the same bytes.
    made.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return Plot(name, title, out.getvalue())


def _quality(report: RunReport, figure: type[Figure]) -> Figure:
    chosen = [(one.method, found) for one in report.methods if (found := one.quality.get(report.measure)) is not None]
    made = figure(figsize=(_WIDTH, 1.1 + 0.32 * max(len(chosen), 1)), layout="constrained")
    axes = made.add_subplot()
    means = [found.mean for _, found in chosen]
    ends = [[mean - found.low for mean, (_, found) in zip(means, chosen, strict=True)]]
    ends.append([found.high - mean for mean, (_, found) in zip(means, chosen, strict=True)])
    axes.errorbar(means, range(len(chosen)), xerr=ends, fmt="o", color=_BAR, ecolor=_SECOND, elinewidth=3, capsize=0)
    _name_rows(axes, [method for method, _ in chosen])
    axes.set_xlabel(NAMES[report.measure])
    axes.set_xlim(*_SHARES)
    return made


def _costs(report: RunReport, figure: type[Figure]) -> Figure:
    made = figure(figsize=(_WIDTH, 1.3 + 0.32 * len(report.methods)), layout="constrained")
    axes = made.add_subplot()
    rows = range(len(report.methods))
    given = [one.costs.input_tokens for one in report.methods]
    got = [one.costs.output_tokens for one in report.methods]
    axes.barh(rows, given, color=_BAR, height=0.6, label="input")
    axes.barh(rows, got, left=given, color=_SECOND, height=0.6, label="output")
    most = max([one.costs.tokens for one in report.methods] + [1.0])
    for row, one in enumerate(report.methods):
        text = f"{one.costs.calls:.1f} calls, {one.costs.retrievals:.1f} retrievals"
        axes.text(one.costs.tokens + 0.01 * most, row, text, va="center", fontsize=8, color=_INK)
    _name_rows(axes, [one.method for one in report.methods])
    axes.set_xlim(0, 1.35 * most)
    axes.set_xlabel("tokens per question")
    made.legend(loc="outside upper center", ncols=2, frameon=False)
    return made


def _rounds(report: RunReport, figure: type[Figure]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    made = figure(figsize=(_WIDTH, 3.4), layout="constrained")
    right, seconds = made.add_subplot(1, 2, 1), made.add_subplot(1, 2, 2)
    for one in _lines(report):
        known = [(entry.round, entry.right) for entry in one.rounds if entry.right is not None]
        right.plot([number for number, _ in known], [share for _, share in known], ".-", label=one.method)
        seconds.plot([entry.round for entry in one.rounds], [entry.seconds for entry in one.rounds], ".-")
    right.set(xlabel="round", ylabel=NAMES[report.measure], ylim=_SHARES)
    seconds.set(xlabel="round", ylabel="seconds per question", ylim=(0, None))
    for axes in (right, seconds):
        axes.grid(visible=True, alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    made.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return made


def _lines(report: RunReport) -> list[MethodFigures]:
    """The first rows, and ours among them; not those of sweeps."""
    plain = {row.label: row.method for row in report.rows if not row.swept}
    chosen = [one for one in report.methods if one.method in plain]
    ours = [one for one in chosen[MOST_LINES - 1 :] if plain[one.method] == OURS][:1]
    return [*chosen[: MOST_LINES - len(ours)], *ours]


def _name_rows(axes: Any, names: list[str]) -> None:
    # A dollar sign would begin a formula.
    axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
