"""Documents of the office programs and books, made by the libraries that write them, or part by part."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from datetime import date
from typing import Any

CONTAINER = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
BOOK = """<package><metadata><dc:title>The Sea</dc:title></metadata><manifest>
<item id="nav" href="nav.xhtml" properties="nav"/><item id="two" href="text/two%20.xhtml"/><item id="one" href="one.xhtml"/>
<item id="lost" href="lost.xhtml"/></manifest>
<spine><itemref idref="nav"/><itemref idref="one"/><itemref idref="lost"/><itemref idref="two"/></spine></package>"""


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def with_parts(data: bytes, parts: Mapping[str, str | bytes]) -> bytes:
    """A package with these parts in place of its own, or besides them."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return zipped({name: archive.read(name) for name in archive.namelist()} | dict(parts))


def part_of(data: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name).decode()


def _saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def docx() -> bytes:
    from docx import Document

    document = Document()
    document.add_heading("The Tarnby plant", 0)
    opened = document.add_paragraph("The plant was opened in 1931.")
    document.add_heading("Output", 1)
    document.add_paragraph("Sheets", style="List Bullet")
    table = document.add_table(rows=0, cols=2)
    for cells in (("Year", "Tons"), ("1932", "40")):
        row = table.add_row().cells
        row[0].text, row[1].text = cells
    document.add_comment(opened.runs, text="The mayor was there.", author="Ada", initials="AL")
    return _saved(document)


def pptx() -> bytes:
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    deck = Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text, first.placeholders[1].text = "The harbour", "It was dug in 1702.\nIt is deep."
    first.notes_slide.notes_text_frame.text = "Say who dug it."
    second = deck.slides.add_slide(deck.slide_layouts[5])
    second.shapes.title.text = "Ships"
    place = (Inches(1), Inches(2), Inches(4), Inches(1))
    table = second.shapes.add_table(2, 2, *place).table
    for row, cells in enumerate((("Ship", "Built"), ("Vega", "1872"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(*place).text_frame.text = "Vega sailed the passage."
    data = CategoryChartData()
    data.categories = ["1870", "1880"]
    data.add_series("Tons", (12, 15.5))
    second.shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, *place, data)
    return _saved(deck)


def commented_pptx() -> bytes:
    data = pptx()
    rels = "ppt/slides/_rels/slide1.xml.rels"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/comments"
    link = f'<Relationship Id="rId99" Type="{kind}" Target="../comments/comment1.xml"/></Relationships>'
    types = '<Override PartName="/ppt/comments/comment1.xml" ContentType="application/xml"/></Types>'
    comment = (
        '<p:cmLst xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main">'
        "<p:cm><p:text>Ask the captain.</p:text></p:cm></p:cmLst>"
    )
    return with_parts(
        data,
        {
            rels: part_of(data, rels).replace("</Relationships>", link),
            "[Content_Types].xml": part_of(data, "[Content_Types].xml").replace("</Types>", types),
            "ppt/comments/comment1.xml": comment,
        },
    )


def xlsx() -> bytes:
    from openpyxl import Workbook
    from openpyxl.comments import Comment

    book = Workbook()
    sheet = book.active
    sheet.title = "Crew"
    for row in (("The crew of 1878",), (), ("Name", "Born", "Pay"), ("Ida Lund", date(1850, 3, 1), 12.0), ("Per", None, 9.5)):
        sheet.append(row)
    sheet["A5"].comment = Comment("He was the cook.", "Ada")
    book.create_sheet("Sheet2").append(["Only this"])
    return _saved(book)


def epub(parts: Mapping[str, str | bytes] | None = None) -> bytes:
    chapter = "<html><body><h2>The storm</h2><p>It blew for&nbsp;days.</p><p>Then it was calm.</p></body></html>"
    book = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": BOOK,
        "OEBPS/nav.xhtml": "<p>Contents</p>",
        "OEBPS/one.xhtml": '<?xml version="1.0"?><!DOCTYPE html><html><body><p>Call me Ida.</p></body></html>',
        "OEBPS/text/two .xhtml": chapter,
    }
    return zipped(book | dict(parts or {}))
