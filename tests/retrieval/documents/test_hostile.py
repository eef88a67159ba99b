"""Files that make parsers take time and memory out of all proportion: each ends within bounds, whatever comes of it."""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from pathlib import Path
from timeit import repeat

import pytest

from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.documents.markup import read_html
from tests.bounds import SECONDS, run_python


def pdf_of(content: bytes, *, filters: str = "/FlateDecode", resources: str = "", more: bytes = b"") -> bytes:
    """A PDF of one page with this content stream, and further objects from the fifth on."""
    head = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<<" + resources.encode() + b">>>>endobj\n"
    )
    stream = b"4 0 obj<</Length %d/Filter%s>>stream\n" % (len(content), filters.encode()) + content + b"\nendstream endobj\n"
    return head + stream + more + b"trailer<</Root 1 0 R>>\n%%EOF"


def pdf_bombs() -> dict[str, bytes]:
    text = zlib.compress(b"BT /F1 1 Tf (a) Tj ET " * 400_000, 9)
    zeros = zlib.compress(bytes(60_000_000), 9)
    form = (
        b"5 0 obj<</Type/XObject/Subtype/Form/Resources<</XObject<</X 5 0 R>>>>/Length 6>>stream\n/X Do \nendstream endobj\n"
    )
    return {
        "text": pdf_of(text),
        "quotes": pdf_of(zlib.compress(b"BT (" + b"\\(" * 2_000_000 + b") Tj ET", 9)),
        "arrays": pdf_of(zlib.compress(b"[" * 1_000_000, 9)),
        "names": pdf_of(zlib.compress(b"/" + b"#41" * 3_000_000, 9)),
        "numbers": pdf_of(zlib.compress(b"BT " + b"1 " * 5_000_000 + b" Tj", 9)),
        "zeros": pdf_of(zeros),
        "twice": pdf_of(zlib.compress(zlib.compress(bytes(200_000_000), 9), 9), filters="[/FlateDecode/FlateDecode]"),
        "lzw": pdf_of(b"\x80\x0b\x60\x50\x22\x0c\x0c\x85\x01" * 5_000, filters="/LZWDecode"),
        "ascii": pdf_of(b"41" * 5_000_000 + b">", filters="/ASCIIHexDecode"),
        "form": pdf_of(zlib.compress(b"/X Do " * 20), resources="/XObject<</X 5 0 R>>", more=form),
        "deep": b"%PDF-1.4\n1 0 obj" + b"<</A" * 40_000 + b"endobj trailer<</Root 1 0 R>>",
        "pages": b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids["
        + b"2 0 R " * 5_000
        + b"]/Count 99999>>endobj trailer<</Root 1 0 R>>",
    }


def bombs() -> dict[str, bytes]:
    units = (b"<a x=1", b"<a b='", b"<")
    return {
        **{f"{name}.pdf": data for name, data in pdf_bombs().items()},
        **{f"{n}.html": b"<html><body><p>A word." + unit * (60_000 // len(unit)) for n, unit in enumerate(units)},
        "columns.csv": b"," * 500_000 + b"\n,x" * 200_000,
        "nested.json": b"[" * 1_500_000,
        "lists.json": b"[" + b"[]," * 3_000_000 + b"1]",
    }


_MEASURED = """
import json, resource, sys, time
from pathlib import Path
from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.documents.markup import read_html
from tests.bounds import SECONDS, run_python, kilobytes
resource.setrlimit(resource.RLIMIT_AS, (900_000_000,) * 2)
for file in map(Path, sys.argv[1:]):
    start, told = time.monotonic(), ""
    try:
        load_documents(file)
    except DocumentError as error:
        told = str(error)
    print(json.dumps([file.name, time.monotonic() - start, file.stat().st_size / 1e6, told]), flush=True)
print(json.dumps([kilobytes("VmHWM") / 1000, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
def test_each_file_ends_within_seconds_and_takes_little_memory(tmp_path: Path) -> None:
    """A file may take 3 s and 30 s a megabyte of the processor, four times that by the clock, and 400 MB."""
    names = [*(made := bombs())]
    for name in names:
        (tmp_path / name).write_bytes(made[name])
    run = run_python("-c", _MEASURED, *(tmp_path / name for name in names))
    *lines, held = map(json.loads, run.stdout.splitlines())
    assert [name for name, *_ in lines] == names
    assert [line for line in lines if line[1] > 4 * (3 + 30 * line[2]) + SECONDS or "\n" in line[3]] == []
    assert sum(held) < 700


def test_a_folder_goes_on_after_files_that_are_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_convcoa.retrieval.documents.load._SECONDS", 0.5)
    monkeypatch.setattr("langgraph_convcoa.retrieval.documents.load._SECONDS_PER_MB", 0.0)
    (tmp_path / "a.html").write_bytes(b"<p>x " * 600_000)
    (tmp_path / "b.md").write_text("# Good\n\nIt is read.")
    (tmp_path / "c.html").write_text("<p>This one too." + " And so on." * 1_000)
    assert [document.id for document in load_documents(tmp_path)] == ["b.md", "c.html"]
    assert "a.html takes longer than" in caplog.text


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="links are made by os.symlink")
def test_links_that_lead_outside_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "docs"
    for made in (outside, folder):
        made.mkdir()
    (outside / "secret.txt").write_text("A secret.")
    (outside / "other.md").write_text("A secret.")
    (folder / "good.txt").write_text("It is read.")
    (folder / "inside.txt").symlink_to(folder / "good.txt")
    (folder / "direct.txt").symlink_to(outside / "secret.txt")
    (folder / "relative.txt").symlink_to("../outside/secret.txt")
    (folder / "chain.txt").symlink_to(folder / "direct.txt")
    (folder / "folder").symlink_to(outside, target_is_directory=True)
    assert [document.page_content for document in load_documents(folder)] == ["It is read.", "It is read."]
    assert caplog.text.count("is a link to a file outside of the folder") == 3
    # What is named itself is wanted, a link to a folder too.
    assert load_documents(folder / "direct.txt")[0].page_content == "A secret."
    assert len(load_documents(folder / "folder")) == 2


@pytest.mark.parametrize(
    "unit",
    ["<!--", "<!-- >", "<a x=1 ", "<a / ", "</a", "<?", "<!", "<![CDATA[", "<![if>", '<a x=">" <b y="', "<script>", "<div>"],
)
def test_four_times_a_page_of_tags_and_comments_without_an_end_takes_four_times_as_long(unit: str) -> None:
    pages = [(unit * (size // len(unit))).encode() for size in (16_000, 64_000)]
    short, long = (
        min(repeat(lambda page=page: read_html(page), timer=time.thread_time, number=1, repeat=3)) for page in pages
    )
    # Sixteen times if the work is quadratic; what is fast passes.
    assert long < 0.05 or long < 9 * short


def test_the_text_after_a_tag_or_comment_without_an_end_is_kept() -> None:
    [piece] = read_html(b"<p>One <!-- two <p>three <b>four</b><p>five <a href='x")
    assert piece.text == "One <!-- two\n\nthree four\n\nfive <a href='x"
    [piece] = read_html(b"<p>One " + b"<!-- two" * 20 + b" <p>three")
    assert piece.text.endswith("two three")
