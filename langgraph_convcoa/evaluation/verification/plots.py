"""Pictures of the verification reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.verification.faithfulness import FaithfulnessReport
from langgraph_convcoa.evaluation.verification.guesses import GuessReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_plot(path: Path) -> None:
    """Say before minutes of measuring what a picture lacks.

    Raises:
        InputError: matplotlib is not installed, or there is no such folder.
    """
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise InputError("matplotlib is not installed; pip install matplotlib, or leave out --plot.") from None
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} for --plot; give a file in one that exists.")


def plot_reliability(report: FaithfulnessReport, path: str | Path) -> None:
    """Draw the mean rating and the share of faithful answers against the score.

    Raises:
        InputError: matplotlib is not installed, or the picture cannot be written.
    """
    figure = _figure(8, 3.5)
    scores = [b.mean_score for b in report.bins]
    for place, (label, values) in enumerate(
        [("mean rating", [b.mean_rating for b in report.bins]), ("share faithful", [b.faithful for b in report.bins])], start=1
    ):
        axes = figure.add_subplot(1, 2, place)
        axes.plot(scores, values, "o-")
        axes.set(xlabel="default score", ylabel=label, xlim=(0, 1))
        axes.grid(visible=True, alpha=0.3)
    _save(figure, path)


def plot_savings(report: GuessReport, path: str | Path) -> None:
    """Draw the corrections saved and the errors among the kept guesses against T.

    Raises:
        InputError: matplotlib is not installed, or the picture cannot be written.
    """
    figure = _figure(8, 3.5)
    kept, errors = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for share in sorted({s.right_share for s in report.savings}):
        rows = [s for s in report.savings if s.right_share == share]
        kept.plot([s.threshold for s in rows], [s.kept for s in rows], label=f"{share:.0%} of guesses right")
        some = [(s.threshold, s.error) for s in rows if s.error is not None]
        errors.plot([t for t, _ in some], [e for _, e in some])
    kept.set(xlabel="T", ylabel="corrections saved", ylim=(0, 1))
    errors.set(xlabel="T", ylabel="wrong among kept", ylim=(0, None))
    kept.legend()
    for axes in (kept, errors):
        axes.grid(visible=True, alpha=0.3)
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("matplotlib is not installed; pip install matplotlib, or leave out --plot.") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: str | Path) -> None:
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"The picture cannot be written to {path}: {error}.") from None
