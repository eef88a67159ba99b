"""Fuzzing of PDFs: bytes, damaged files and objects in any arrangement; a worker ends each with pages or a reason."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.load import read_pieces
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers
from tests.fuzz import fuzzed

pytestmark = pytest.mark.slow

OBJECTS = [
    "<</Type/Catalog/Pages 2 0 R>>",
    "<</Type/Pages/Kids[3 0 R]/Count 1>>",
    "<</Type/Pages/Kids[2 0 R 2 0 R]/Count 9999999>>",
    "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>/XObject<</X 6 0 R>>>>>>",
    "[4 0 R 4 0 R]",
    "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    "<</Type/Font/Subtype/Type0/Encoding/Identity-H/DescendantFonts[5 0 R]/ToUnicode 4 0 R>>",
    "<</Type/XObject/Subtype/Form/Resources<</XObject<</X 6 0 R>>>>/Length 5>>stream\n/X Do\nendstream",
    "1 0 R",
    "null",
    "(",
    "<41",
    "[[[[",
    "<</Length -1>>stream\nx\nendstream",
    "<</Length 99999999/Filter/FlateDecode>>stream\nx\nendstream",
    "<</Filter[/A85 /LZW /RL /CCF]/Length 1>>stream\n~\nendstream",
    "<</Type/ObjStm/N 99999999/First 1/Length 3>>stream\n1 0\nendstream",
    "<</Type/XRef/W[1 99 1]/Size 9/Length 3>>stream\nabc\nendstream",
    "-9" * 50,
    "<</Type/Encrypt/Filter/Standard/V 5/R 6/O()/U()/P -1>>",
    "/" + "#41" * 30,
]
OPERATORS = [
    *(
        "BT",
        "ET",
        "/F1 9 Tf",
        "(It is so.)",
        "Tj",
        "[(a) -200 (b)]",
        "TJ",
        "1 0 0 1 9 9 Tm",
        "T*",
        "/X Do",
        "q",
        "Q",
        "BI",
        "ID",
    ),
    *("EI", "<41", "[", "]", "9" * 40, "'", '"'),
]
STREAMS = st.lists(st.sampled_from(OPERATORS), max_size=25).map(" ".join)


@st.composite
def pdfs(draw: st.DrawFn) -> bytes:
    chosen = [*OBJECTS[:2], OBJECTS[3]] if draw(st.booleans()) else []
    content = zlib.compress(draw(STREAMS).encode())[: draw(st.sampled_from([10_000, 10_000, 20]))]
    stream = b"<</Length %d/Filter/FlateDecode>>stream\n" % len(content) + content + b"\nendstream"
    parts = [
        *(one.encode() for one in chosen),
        stream,
        *(one.encode() for one in draw(st.lists(st.sampled_from(OBJECTS), max_size=6))),
    ]
    body = b"".join(b"%d 0 obj%s endobj\n" % (number, part) for number, part in enumerate(parts, 1))
    ends = [b"trailer<</Root 1 0 R>>", b"startxref\n0\n", b"trailer<</Root 1 0 R/Prev 0/Encrypt 5 0 R>>", b""]
    data = b"%PDF-1.7\n" + body + draw(st.sampled_from(ends)) + b"%%EOF"
    for place, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4)):
        data = data[:place] + bytes([value]) + data[place + 1 :]
    return data


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as shared:
        yield shared


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "any"


@fuzzed
@given(st.one_of(pdfs(), st.binary(max_size=200).map(lambda data: b"%PDF-1.4\n" + data)))
def test_any_pdf_is_read_or_refused(workers: Workers, file: Path, data: bytes) -> None:
    file.write_bytes(data)
    try:
        pieces, _ = workers.call(read_pieces, str(file), ".pdf", 1_000_000, 3.0, seconds=30)
    except DocumentError as error:
        assert "\n" not in str(error)
        return
    except LimitError as error:
        assert "ended the process" not in str(error)
        return
    assert all(piece["text"].strip() for piece in pieces)
