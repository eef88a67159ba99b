"""Helpers for the pictures of the experiments (extra `experiments`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAIN, SECOND = "#2b6cb0", "#a0c4e8"
"""The colours of bars."""


def new_figure(width: float, height: float) -> Figure:
    """An empty matplotlib figure, in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError('Pictures need matplotlib: pip install "langgraph-convcoa[experiments]"') from None
    return Figure(figsize=(width, height), layout="constrained")


def style(*all_axes: Any, integers: bool = False, axis: str = "both") -> None:
    """Give axes a grid; with `integers` the ticks of the x axis are whole numbers."""
    for axes in all_axes:
        axes.grid(visible=True, alpha=0.3, axis=axis)
        axes.set_axisbelow(True)
        if integers:
            from matplotlib.ticker import MaxNLocator

            axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def save_picture(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file in the format of its ending, such as .png, .svg or .pdf."""
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise InputError(f"the picture cannot be written to {path}: {error}") from None
