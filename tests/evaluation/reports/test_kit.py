"""Tables, pictures and pages of any report."""

from __future__ import annotations

from pathlib import Path

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import (
    Page,
    Picture,
    Table,
    check_page,
    check_picture,
    new_figure,
    save_picture,
    style,
)


def _figure():
    pytest.importorskip("matplotlib")
    figure = new_figure(2, 1)
    axes = figure.add_subplot()
    axes.plot([1, 2], [3, 4])
    style(axes, integers=True)
    return figure


def test_what_cannot_be_drawn_is_said_before_it_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    check_picture(tmp_path / "curve.svg")
    with pytest.raises(InputError, match=r"its ending is one of .*\.png"):
        check_picture(tmp_path / "curve.doc")
    with pytest.raises(InputError, match="no folder"):
        check_picture(tmp_path / "absent" / "curve.svg")
    with pytest.raises(InputError, match=r"one of \.md, \.html"):
        check_page(tmp_path / "costs.txt")
    with pytest.raises(InputError, match="no folder"):
        check_page(tmp_path / "absent" / "costs.md")


def test_a_picture_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    save_picture(_figure(), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    for name in ("curve.doc", "absent/curve.png"):
        with pytest.raises(InputError, match="the picture cannot be written"):
            save_picture(_figure(), tmp_path / name)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"langgraph-convcoa\[evaluate\]"):
        new_figure(1, 1)


def test_a_page_is_written_with_its_pictures(tmp_path: Path) -> None:
    table = Table("Rows", ("name", "kind", "n"), (("<b>", "x", "1"),), "Of nothing.", left=2)
    page = Page("Costs", "A summary.", [table], [Picture.of("curve", "The curve", _figure())], {"k": 5})
    page.save(tmp_path / "costs.md")
    page.save(tmp_path / "costs.html")
    text, html = (tmp_path / "costs.md").read_text(), (tmp_path / "costs.html").read_text()
    assert "| --- | --- | ---: |" in text
    assert "![The curve](curve.png)" in text
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "&lt;b&gt;" in html
    assert 'alt="The curve"' in html
    assert "Settings" in html
    assert "Settings" not in Page("Costs", "", [table]).html()
    with pytest.raises(InputError, match="the report cannot be written"):
        page.save(tmp_path / "absent" / "costs.md")
