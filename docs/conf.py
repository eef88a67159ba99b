"""The documentation, built by Sphinx: `make docs`. Warnings are errors."""

from __future__ import annotations

import re
from importlib.metadata import version as installed
from typing import Any

project = "langgraph_convcoa"
author = "The langgraph_convcoa authors"
copyright = author
release = version = installed("langgraph-convcoa")
html_show_sphinx = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "convcoa"
html_static_path = ["_static"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
# Models of pydantic show their own fields, not those that every model has.
autodoc_inherit_docstrings = False


def _as_restructured_text(_app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings mark code with single backticks, as Markdown does, and may hold |x| for a norm."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(?<!`)`([^`]+)`(?!`)", line)
            lines[number] = "".join(f"``{part}``" if i % 2 else part.replace("|", r"\|") for i, part in enumerate(parts))


def setup(app: Any) -> None:
    """Register the conversion, before that of the sections of a docstring."""
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=100)
