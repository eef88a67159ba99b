"""Scanned pages and pictures of text: named where nothing reads them, and read by tesseract where it is installed."""

from __future__ import annotations

import io
import os
import shutil
import time
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents import formats
from langgraph_convcoa.retrieval.documents.formats import read_pdf
from langgraph_convcoa.retrieval.documents.kinds import readable_suffixes
from langgraph_convcoa.retrieval.documents.load import load_documents, read_file
from tests.data import pdf_bytes

Image = pytest.importorskip("PIL.Image")
TEXT = "The bridge was opened in 1931."


def scan(*texts: str, kind: str = "PDF") -> bytes:
    from PIL import ImageDraw, ImageFont

    pages = []
    for text in texts:
        page = Image.new("L", (900, 160), 255)
        ImageDraw.Draw(page).text((30, 50), text, fill=0, font=ImageFont.load_default(44))
        pages.append(page)
    out = io.BytesIO()
    more = {"save_all": True, "append_images": pages[1:]} if len(pages) > 1 else {}
    pages[0].save(out, kind, **more)
    return out.getvalue()


def joined(*files: bytes) -> bytes:
    writer, out = PdfWriter(), io.BytesIO()
    for file in files:
        writer.append(PdfReader(io.BytesIO(file)))
    writer.write(out)
    return out.getvalue()


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.fixture
def tesseract(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in its place, which finds the same words in every picture that is one."""
    program = tmp_path_factory.mktemp("bin") / "tesseract"
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --list-langs ]; then echo "List of 3:"; echo deu; echo eng; echo osd; exit; fi\n'
        'head -c 9 | od -c | head -n 1 | grep -qE "P +N +G|377 +330|I +I" || exit 1\n'
        'echo "Words in $4."\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    formats._languages.cache_clear()
    return program


@pytest.mark.usefixtures("nothing_installed")
def test_pages_that_are_pictures_are_named_with_what_to_install(tmp_path: Path) -> None:
    mixed = joined(pdf_bytes("First.", "Second."), scan("a", "b", "c"), pdf_bytes("Sixth.", ""), scan("d"))
    (tmp_path / "mixed.pdf").write_bytes(mixed)
    told: list[tuple[str, str]] = []
    documents = load_documents(tmp_path, told=lambda *what: told.append(what))
    assert [document.metadata["page"] for document in documents] == [1, 2, 6]
    # The empty page is none of them.
    ((name, reason),) = told
    assert name == "mixed.pdf"
    assert reason.startswith("pages 3 to 5, 8 hold images only: install tesseract (apt install tesseract-ocr")
    with pytest.raises(DocumentError, match=r"is a scanned PDF, page 1 holds images only: install tesseract"):
        list(read_pdf(io.BytesIO(scan("a")), 1_000))


@pytest.mark.usefixtures("nothing_installed")
def test_a_picture_is_named_with_what_to_install(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("Text.")
    (tmp_path / "b.png").write_bytes(scan("a", kind="PNG"))
    assert len(load_documents(tmp_path)) == 1
    assert "skipped: b.png is a picture: install tesseract" in caplog.text
    assert ".png" not in readable_suffixes()
    assert read_file(tmp_path / "b.png")[1][0].startswith("is a picture: install tesseract")


def test_a_program_that_is_installed_reads_them(tmp_path: Path, tesseract: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(joined(pdf_bytes("First."), scan("a")))
    (tmp_path / "b.png").write_bytes(scan("a", kind="PNG"))
    (tmp_path / "c.png").write_bytes(b"no picture")
    told: list[tuple[str, str]] = []
    found = {document.id: document.page_content for document in load_documents(tmp_path, told=lambda *what: told.append(what))}
    # In the languages that are installed, English last.
    assert found == {"a.pdf:page-1": "First.", "a.pdf:page-2": "Words in deu+eng.", "b.png": "Words in deu+eng."}
    assert told == [("c.png", "is a picture in which no text was recognised")]
    assert {".png", ".jpg", ".tiff"} <= set(readable_suffixes())


def test_pages_beyond_the_time_are_named(tesseract: Path) -> None:
    tesseract.write_text('#!/bin/sh\n[ "$1" = --list-langs ] || exec sleep 30\n')
    pages = joined(pdf_bytes("First."), scan("a", "b"))
    first, told = read_pdf(io.BytesIO(pages), 1_000, pictures_until=time.monotonic() + 0.3)
    assert (first.metadata, told.skipped) == ({"page": 1}, "pages 2 to 3 hold images only: there was no time to read all")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_a_scan_and_pictures_are_read_within_the_limits_of_a_worker(tmp_path: Path) -> None:
    formats._languages.cache_clear()
    (tmp_path / "a.pdf").write_bytes(scan(TEXT))
    (tmp_path / "b.jpg").write_bytes(scan(TEXT, kind="JPEG"))
    (tmp_path / "c.tiff").write_bytes(scan(TEXT, "It is red.", kind="TIFF"))
    found = {document.id: document.page_content.strip() for document in load_documents(tmp_path)}
    assert found == {"a.pdf:page-1": TEXT, "b.jpg": TEXT, "c.tiff:page-1": TEXT, "c.tiff:page-2": "It is red."}
