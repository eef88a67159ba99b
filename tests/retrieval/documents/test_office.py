"""Word, PowerPoint, Excel and EPUB: real files, broken ones, hostile ones."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents import kinds
from langgraph_convcoa.retrieval.documents.load import load_documents, read_file
from langgraph_convcoa.retrieval.documents.office import read_docx, read_epub, read_pptx, read_xlsx
from langgraph_convcoa.retrieval.documents.worker import Workers
from tests.actions.web.site import Canary
from tests.bounds import run_python
from tests.retrieval.documents import packages

pytest.importorskip("mammoth")
pytest.importorskip("pptx")
pytest.importorskip("openpyxl")
pytest.importorskip("docx")
ENOUGH = 10_000_000
MADE = {
    ".docx": (packages.docx, read_docx),
    ".pptx": (packages.pptx, read_pptx),
    ".xlsx": (packages.xlsx, read_xlsx),
    ".epub": (packages.epub, read_epub),
}


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as shared:
        yield shared


def test_a_word_document_keeps_its_heading_tables_and_comments() -> None:
    (piece,) = read_docx(io.BytesIO(packages.docx()), ENOUGH)
    assert piece.title == "The Tarnby plant"
    assert piece.text.split("\n\n") == [
        "The plant was opened in 1931.",
        "Output",
        "Sheets",
        "Year | Tons",
        "1932 | 40",
        "Comment [AL1]",
        "The mayor was there.",
    ]


def test_slides_are_pages_with_tables_charts_notes_and_comments() -> None:
    first, second = read_pptx(io.BytesIO(packages.commented_pptx()), ENOUGH)
    assert (first.title, first.key, first.metadata) == ("The harbour", "slide-1", {"page": 1})
    assert first.text.split("\n\n") == [
        "It was dug in 1702.\nIt is deep.",
        "Notes: Say who dug it.",
        "Comment: Ask the captain.",
    ]
    assert second.metadata == {"page": 2}
    assert second.text.split("\n\n") == [
        "Ship | Built",
        "Vega | 1872",
        "Vega sailed the passage.",
        "| Tons\n1870 | 12\n1880 | 15.5",
    ]


def test_rows_of_sheets_have_their_columns_names_their_sheet_and_their_number() -> None:
    crew, other = read_xlsx(io.BytesIO(packages.xlsx()), ENOUGH)
    assert (crew.title, crew.key, crew.metadata) == (
        "Crew",
        "sheet-1-row-1",
        {"sheet": "Crew", "row": 1, "entities": ["The crew of 1878", "Ida Lund", "Per"]},
    )
    assert crew.text.split("\n\n") == [
        "Name: The crew of 1878",
        "Name: Ida Lund\nBorn: 1850-03-01\nPay: 12",
        "Name: Per (comment: He was the cook.)\nPay: 9.5",
    ]
    # The name that Excel gave says nothing.
    assert (other.title, other.text, other.metadata["sheet"]) == ("", "column 1: Only this", "Sheet2")


@pytest.mark.parametrize(
    ("name", "title"),
    [("Sheet", ""), ("Tabelle 2", ""), *((name, name) for name in ("Sheets", "Crew", "Budget 2024", "FY2025", "Q3"))],
)
def test_the_name_that_a_program_gave_a_sheet_is_no_title(name: str, title: str) -> None:
    from openpyxl import Workbook

    book, stream = Workbook(), io.BytesIO()
    book.active.title = name
    book.active.append(["Only this"])
    book.save(stream)
    (piece,) = read_xlsx(stream, ENOUGH)
    assert (piece.title, piece.metadata["sheet"]) == (title, name)


def test_a_large_workbook_is_read_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.retrieval.documents.office._WITH_COMMENTS", 0)
    crew, _ = read_xlsx(io.BytesIO(packages.xlsx()), ENOUGH)
    assert "Name: Ida Lund\nBorn: 1850-03-01\nPay: 12" in crew.text


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    first, second = read_epub(io.BytesIO(packages.epub()), ENOUGH)
    assert (first.title, first.text, first.metadata) == ("The Sea", "Call me Ida.", {"chapter": 2})
    assert (second.title, second.text) == ("The Sea: The storm", "It blew for days.\n\nThen it was calm.")


def test_a_folder_of_all_kinds_has_their_places_in_ids_and_metadata(
    tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SimpleNamespace(call=workers.call, close=lambda: None)
    monkeypatch.setattr("langgraph_convcoa.retrieval.documents.load.Workers", lambda: shared)
    for suffix, (make, _) in MADE.items():
        (tmp_path / f"a{suffix}").write_bytes(make())
    found = {document.id: document.metadata for document in load_documents(tmp_path)}
    assert list(found) == [
        "a.docx",
        "a.epub:chapter-2",
        "a.epub:chapter-4",
        "a.pptx:slide-1",
        "a.pptx:slide-2",
        "a.xlsx:sheet-1-row-1",
        "a.xlsx:sheet-2-row-1",
    ]
    assert found["a.pptx:slide-2"] == {"source": "a.pptx", "title": "Ships", "page": 2}
    assert found["a.xlsx:sheet-2-row-1"] == {
        "source": "a.xlsx",
        "title": "a",
        "sheet": "Sheet2",
        "row": 1,
        "entities": ["Only this"],
    }


def test_what_is_read_of_a_file_stops_at_the_limit() -> None:
    for make, read in (MADE[".pptx"], MADE[".xlsx"], MADE[".epub"]):
        assert len(list(read(io.BytesIO(make()), 1))) == 1


@pytest.mark.parametrize("suffix", MADE)
def test_a_broken_file_says_what_it_is(suffix: str, tmp_path: Path, workers: Workers) -> None:
    make, _ = MADE[suffix]
    whole = make()
    broken = {
        "is no readable": [whole[: len(whole) // 2], b"", b"PK\x03\x04", b"text", packages.zipped({"other.txt": "x"})],
        "is encrypted with a password, or of an older kind": [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)],
    }
    for reason, files in broken.items():
        for number, data in enumerate(files):
            file = tmp_path / f"{len(reason)}-{number}{suffix}"
            file.write_bytes(data)
            documents, (told,) = read_file(file, workers=workers)
            assert documents == []
            assert told.startswith(reason), (told, data[:9])
            assert "\n" not in told


def test_damage_is_refused_or_does_no_harm() -> None:
    for make, read in MADE.values():
        whole = make()
        for place in range(0, len(whole), max(1, len(whole) // 6)):
            data = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
            with contextlib.suppress(DocumentError):
                list(read(io.BytesIO(data), ENOUGH))


def _bomb(suffix: str) -> bytes:
    return packages.with_parts(MADE[suffix][0](), {"word/media/a.bin": bytes(40_000_000)})


def _locked(suffix: str) -> bytes:
    data = bytearray(MADE[suffix][0]())
    entry = data.index(b"PK\x01\x02")
    data[entry + 8] |= 1
    return bytes(data)


def test_bombs_entities_and_passwords_are_refused_in_one_line(tmp_path: Path, workers: Workers) -> None:
    entities = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]><x>&a;</x>'
    wide = f'<?xml version="1.0" encoding="utf-16"?>{entities[21:]}'.encode("utf-16")
    many = packages.zipped({f"{number}.txt": "" for number in range(10_001)})
    for suffix, part in ((".docx", "word/document.xml"), (".xlsx", "xl/workbook.xml"), (".epub", "OEBPS/one.xhtml")):
        make = MADE[suffix][0]
        cases = {
            "declares XML entities": [packages.with_parts(make(), {part: text}) for text in (entities, wide)],
            "is encrypted with a password": [_locked(suffix)],
        }
        if suffix == ".docx":
            cases["is a package of 10001 parts"] = [many]
            cases["unpacks to 41 MB"] = [_bomb(suffix)]
        for reason, files in cases.items():
            for data in files:
                file = tmp_path / f"a{suffix}"
                file.write_bytes(data)
                documents, (told,) = read_file(file, workers=workers)
                assert (documents, told[: len(reason)]) == ([], reason)


def test_a_part_is_read_no_further_than_it_declares() -> None:
    data = bytearray(packages.docx())
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        size = archive.getinfo("word/document.xml").file_size
    lied = bytes(data).replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    with pytest.raises(DocumentError, match=r"is no readable \.docx file"):
        list(read_docx(io.BytesIO(lied), ENOUGH))


def test_a_cell_far_from_the_others_makes_no_millions_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    from openpyxl import Workbook

    book, out = Workbook(), io.BytesIO()
    book.active["A1"] = book.active.cell(1_000_000, 16_000).value = "far"
    book.save(out)
    (piece,) = read_xlsx(out, ENOUGH)
    assert piece.text == "column 1: far\n\ncolumn 16000: far"
    # Read row by row, the cells between are gone through.
    monkeypatch.setattr("langgraph_convcoa.retrieval.documents.office._WITH_COMMENTS", 0)
    with pytest.raises(DocumentError, match=r"nearly all of them empty"):
        list(read_xlsx(out, ENOUGH))


def test_nothing_that_a_document_refers_to_is_fetched(tmp_path: Path, workers: Workers) -> None:
    with Canary() as canary:
        address = f"http://127.0.0.1:{canary.port}/secret"
        outside = f'<!DOCTYPE html SYSTEM "{address}">'
        link = '<Relationship Id="rId98" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{}" '
        link += f'Target="{address}" TargetMode="External"/></Relationships>'
        secret = tmp_path / "secret.txt"
        secret.write_text("A secret.")
        picture = (
            '<w:p><w:r><w:drawing><a:graphic xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><a:graphicData>'
            '<a:blip xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" r:link="rId98"/>'
            "</a:graphicData></a:graphic></w:drawing></w:r></w:p></w:body>"
        )
        word, slides = packages.docx(), packages.pptx()
        rels, slide = "word/_rels/document.xml.rels", "ppt/slides/_rels/slide1.xml.rels"
        cases = {
            "a.docx": packages.with_parts(
                word,
                {
                    rels: packages.part_of(word, rels).replace("</Relationships>", link.format("image")),
                    "word/document.xml": packages.part_of(word, "word/document.xml").replace("</w:body>", picture),
                },
            ),
            "b.docx": packages.with_parts(
                word,
                {
                    rels: packages.part_of(word, rels)
                    .replace("</Relationships>", link.format("image"))
                    .replace(address, secret.as_uri())
                },
            ),
            "a.pptx": packages.with_parts(
                slides, {slide: packages.part_of(slides, slide).replace("</Relationships>", link.format("comments"))}
            ),
            "a.epub": packages.epub({"OEBPS/one.xhtml": f"{outside}<p>Call me <img src='{address}'/>Ida.</p>"}),
        }
        for name, data in cases.items():
            (tmp_path / name).write_bytes(data)
            documents, reasons = read_file(tmp_path / name, workers=workers)
            assert documents, reasons
            assert not any("secret" in document.page_content for document in documents)
        assert canary.reached == 0


def test_a_protected_book_is_refused_and_one_with_hidden_fonts_is_read() -> None:
    locked = '<encryption><enc:CipherReference URI="{}"/></encryption>'
    fonts = packages.epub({"META-INF/encryption.xml": locked.format("OEBPS/font.otf")})
    assert len(list(read_epub(io.BytesIO(fonts), ENOUGH))) == 2
    with pytest.raises(DocumentError, match="is protected"):
        list(read_epub(io.BytesIO(packages.epub({"META-INF/encryption.xml": locked.format("OEBPS/one.xhtml")})), ENOUGH))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(kinds, "find_spec", lambda name: None if name in ("mammoth", "pptx", "openpyxl") else object())
    (tmp_path / "report.docx").write_bytes(packages.docx())
    (tmp_path / "good.txt").write_text("It is read.")
    needs = r'report\.docx needs the extra documents: pip install "langgraph-convcoa\[documents\]"'
    with pytest.raises(DocumentError, match=needs):
        load_documents(tmp_path / "report.docx")
    assert [document.id for document in load_documents(tmp_path)] == ["good.txt"]
    assert "report.docx needs the extra documents" in caplog.text
    assert not {".docx", ".pptx", ".xlsx"} & set(kinds.readable_suffixes())
    assert ".epub" in kinds.readable_suffixes()


@pytest.mark.slow
def test_reading_other_kinds_imports_no_office_package() -> None:
    code = (
        "import sys; from langgraph_convcoa.retrieval.documents.load import load_documents, readable_suffixes;"
        "readable_suffixes(); print([n for n in ('mammoth', 'pptx', 'openpyxl', 'PIL') if n in sys.modules])"
    )
    assert run_python("-c", code).stdout.strip() == "[]"
