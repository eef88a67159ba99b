"""The kit of all reports: tables, pictures and pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich import table as rich_table
from rich.console import Group
from rich.text import Text

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.terminal import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MAIN, SECOND = "#1f2933", "#2b6cb0", "#a0c4e8"
"""The colours of bars and marks."""

_CELL = 200
_NO_MATPLOTLIB = 'Pictures need matplotlib: pip install "langgraph-convcoa[evaluate]", or ask for none.'


@dataclass(frozen=True)
class Table:
    """A table as Markdown, in an HTML page, and at a terminal, where rich prints it."""

    title: str  # may be empty
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # what the figures are, in a sentence or two
    left: int = 1  # how many columns at the left hold text; the others are figures

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
        rules = ["---" if place < self.left else "---:" for place in range(len(self.columns))]
        lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in (self.columns, rules, *self.rows)]
        return "\n".join([*([f"## {self.title}", ""] if self.title else []), *([self.note, ""] if self.note else []), *lines])

    def __rich__(self) -> rich_table.Table:
        # Text, since a name may hold what rich takes for markup.
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
    """Base of what a measurement returns, a dataclass: tables for a person, `to_dict` for a program."""

    def tables(self) -> Sequence[Table]:
        """All tables, in the order in which they are read."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON data."""
        return asdict(cast(Any, self))

    def __rich__(self) -> Group:
        return Group(*self.tables())


def shown(value: float | None, digits: int = 3) -> str:
    """A figure; nothing where there is none."""
    return "" if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """A share; nothing where there is none."""
    return "" if share is None else f"{share:.1%}"


def ratio(part: int, whole: int) -> str:
    """A part of a whole with its share; nothing of no whole.

    Example:
        >>> ratio(1, 4), ratio(0, 0)
        ('1 of 4 (25.0%)', '')
    """
    return f"{part} of {whole} ({part / whole:.1%})" if whole else ""


def new_figure(width: float, height: float) -> Figure:
    """An empty matplotlib figure, in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(_NO_MATPLOTLIB) from None
    return Figure(figsize=(width, height), layout="constrained")


def style(*all_axes: Any, integers: bool = False, axis: str = "both") -> None:
    """Give axes their grid; with `integers` the marks of the x axis are whole numbers."""
    for axes in all_axes:
        axes.grid(visible=True, alpha=0.3, axis=axis)
        axes.set_axisbelow(True)
        if integers:
            from matplotlib.ticker import MaxNLocator

            axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_picture(path: str | Path) -> None:
    """See that a picture can be drawn into a file, before minutes are spent on what it shows."""
    known = new_figure(1, 1).canvas.get_supported_filetypes()
    _check(Path(path), "picture", sorted(f".{ending}" for ending in known))


def check_page(path: str | Path) -> None:
    """See that a page can be written to a file, before minutes are spent on what it holds."""
    _check(Path(path), "report", [".md", ".html", ".htm"])


def save_picture(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file in the format of its ending, such as .png, .svg or .pdf."""
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise InputError(f"the picture cannot be written to {path}: {error}") from None


@dataclass(frozen=True)
class Picture:
    """A picture of a page."""

    name: str  # of its file, without an ending
    title: str  # what it shows; also what is said in its place
    png: bytes

    @classmethod
    def of(cls, name: str, title: str, figure: Figure) -> Picture:
        """A figure as PNG; the same figure gives the same bytes."""
        out = BytesIO()
        # Without the version of the program.
        figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
        return cls(name, title, out.getvalue())


@dataclass(frozen=True)
class Page:
    """A report to read, as Markdown with pictures in separate files or as one self-contained HTML file."""

    title: str
    summary: str
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    # What else decides the figures, in a table or as JSON at the end.
    settings: Mapping[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """The page in Markdown."""
        parts = [f"# {self.title}", self.summary, *(f"![{one.title}]({one.name}.png)" for one in self.pictures)]
        parts += [table.markdown() for table in self.tables]
        if self.settings:
            parts += ["## Settings", f"```json\n{json.dumps(self.settings, indent=2, ensure_ascii=False)}\n```"]
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """The page in HTML, without scripts."""
        from jinja2 import Environment, StrictUndefined

        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
        pictures = [{"title": one.title, "data": base64.b64encode(one.png).decode()} for one in self.pictures]
        settings = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.settings.items()}
        return template.render(
            title=self.title, summary=self.summary, pictures=pictures, tables=self.tables, settings=settings
        )

    def save(self, path: str | Path) -> None:
        """Write the page, as Markdown where the file ends in .md, else as HTML."""
        path = Path(path)
        is_markdown = path.suffix.lower() == ".md"
        try:
            for picture in self.pictures if is_markdown else ():
                path.with_name(f"{picture.name}.png").write_bytes(picture.png)
            path.write_text(self.markdown() if is_markdown else self.html(), encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"the report cannot be written to {path} ({error.strerror}): name another place") from None


def _check(path: Path, what: str, endings: Sequence[str]) -> None:
    if path.suffix.lower() not in endings:
        raise InputError(f"the {what} cannot be written to {path.name!r}: its ending is one of {', '.join(endings)}")
    if not path.parent.is_dir():
        raise InputError(f"the {what} cannot be written: there is no folder {path.parent}")


def _cell(text: str) -> str:
    return one_line(text, _CELL).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
