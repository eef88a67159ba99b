"""The plots of a question-answering run: quality with intervals, tokens a question, and the curve by round."""

from __future__ import annotations

from typing import Any

from langgraph_convcoa.evaluation.methods.registry import OURS
from langgraph_convcoa.evaluation.reports.figures import MethodFigures, RunFigures
from langgraph_convcoa.evaluation.reports.kit import INK, MAIN, SECOND, Picture, can_draw, new_figure, style
from langgraph_convcoa.evaluation.reports.tables import NAMES

MOST_LINES = 8
"""More lines in one plot than this cannot be distinguished; the first rows are drawn, and ours."""

_WIDTH = 8.0
_SHARES = (-0.02, 1.02)
"""The axis of a share: marks and lines at its ends are seen whole."""


def plots_of(run: RunFigures) -> list[Picture]:
    """The pictures of a run; none where matplotlib is not installed."""
    if not can_draw():
        return []
    main = NAMES[run.measure]
    drawn = [
        Picture.of("quality", f"{main} with 95% intervals", _quality(run)),
        Picture.of("costs", "Tokens and model calls per question", _costs(run)),
    ]
    if len({entry.round for one in run.methods for entry in one.rounds}) > 1:
        drawn.append(Picture.of("rounds", f"{main} and seconds by round", _rounds(run)))
    return drawn


def _quality(run: RunFigures) -> Any:
    chosen = [(one.method, found) for one in run.methods if (found := one.quality.get(run.measure)) is not None]
    figure = new_figure(_WIDTH, 1.1 + 0.32 * max(len(chosen), 1))
    axes = figure.add_subplot()
    means = [found.mean for _, found in chosen]
    ends = [[found.mean - found.low for _, found in chosen], [found.high - found.mean for _, found in chosen]]
    axes.errorbar(means, range(len(chosen)), xerr=ends, fmt="o", color=MAIN, ecolor=SECOND, elinewidth=3, capsize=0)
    _name_rows(axes, [method for method, _ in chosen])
    axes.set(xlabel=NAMES[run.measure], xlim=_SHARES)
    return figure


def _costs(run: RunFigures) -> Any:
    figure = new_figure(_WIDTH, 1.3 + 0.32 * len(run.methods))
    axes = figure.add_subplot()
    rows = range(len(run.methods))
    given = [one.costs.input_tokens for one in run.methods]
    axes.barh(rows, given, color=MAIN, height=0.6, label="input")
    axes.barh(rows, [one.costs.output_tokens for one in run.methods], left=given, color=SECOND, height=0.6, label="output")
    most = max([one.costs.tokens for one in run.methods] + [1.0])
    for row, one in enumerate(run.methods):
        text = f"{one.costs.calls:.1f} calls, {one.costs.retrievals:.1f} retrievals"
        axes.text(one.costs.tokens + 0.01 * most, row, text, va="center", fontsize=8, color=INK)
    _name_rows(axes, [one.method for one in run.methods])
    axes.set(xlabel="tokens per question", xlim=(0, 1.35 * most))
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def _rounds(run: RunFigures) -> Any:
    figure = new_figure(_WIDTH, 3.4)
    right, seconds = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for one in _lines(run):
        known = [(entry.round, entry.right) for entry in one.rounds if entry.right is not None]
        right.plot([number for number, _ in known], [share for _, share in known], ".-", label=one.method)
        seconds.plot([entry.round for entry in one.rounds], [entry.seconds for entry in one.rounds], ".-")
    right.set(xlabel="round", ylabel=NAMES[run.measure], ylim=_SHARES)
    seconds.set(xlabel="round", ylabel="seconds per question", ylim=(0, None))
    style(right, seconds, integers=True)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _lines(run: RunFigures) -> list[MethodFigures]:
    """The first rows, and ours among them; not those of sweeps."""
    plain = {row.label: row.method for row in run.rows if not row.swept}
    chosen = [one for one in run.methods if one.method in plain]
    ours = [one for one in chosen[MOST_LINES - 1 :] if plain[one.method] == OURS][:1]
    return [*chosen[: MOST_LINES - len(ours)], *ours]


def _name_rows(axes: Any, names: list[str]) -> None:
    # A dollar sign would begin a formula.
    axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    style(axes, axis="x")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
