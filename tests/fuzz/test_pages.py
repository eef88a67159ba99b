"""Fuzzing of web pages and HTML or Markdown documents: a worker ends each with a text or a reason, and does not break down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_convcoa.actions.web.fetch import PageError
from langgraph_convcoa.actions.web.pages import read_page
from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.load import read_pieces
from langgraph_convcoa.retrieval.documents.markup import load_extractor
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers
from tests.fuzz import fuzzed

pytest.importorskip("trafilatura")
pytestmark = pytest.mark.slow

PIECES = [
    *("<html>", "<head>", "<body>", "<title>T", "<p>", "</p>", "<div ", "<a href='", 'class="', ">", "<!--", "-->", "<br/>"),
    *("<![CDATA[", "]]>", "<script>", "</script>", "<style>", "<table><tr><td>", "<svg>", "<math>", "<template>", "<article>"),
    *("<h1>", "<time datetime=", "<meta charset=utf-16>", "<meta name=date content='2020-02-30'>"),
    *("<?xml version='1.0' encoding='x'?>", "<!DOCTYPE x [<!ENTITY a '&a;'>]>", "&#0;", "&#xD800;", "&#99999999999;", "&amp"),
    *("&notanentity;", "字", "\u202e", "\x00", "\ud83d\ude00", "%PDF-1.4", "The bridge is 300 m long. ", "# Title\n\n"),
    *("---\ntitle: x\n---\n", "|a|b|\n|-|-|\n", "> ", "- ", "1. ", "```\n", "[a](b)", "[a]: b\n", "![", "*", "_", "\\"),
    *("\n\n", "    "),
]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=10)), max_size=40).map("".join)
BODIES = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda text, charset, repeat: (text * repeat).encode(charset, "replace"),
        TEXTS,
        st.sampled_from(["utf-8", "utf-16", "latin-1", "gb18030", "utf-32"]),
        st.sampled_from([1, 1, 1, 20]),
    ),
)
KINDS = st.sampled_from(["text/html", "application/xhtml+xml", "text/plain", "text/markdown", "application/pdf", ""])
CHARSETS = st.sampled_from(["", "utf-8", "utf-16", "utf-7", "idna", "hex", "x" * 50, "\x00", "latin-1", "undefined"])


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(prepare=load_extractor) as shared:
        yield shared


@fuzzed
@given(BODIES, KINDS, CHARSETS)
@example(b"<a x=1 " * 2_000, "text/html", "")
@example(b"<div>" * 100_000, "text/html", "")
def test_any_page_is_read_or_left_out(workers: Workers, body: bytes, kind: str, charset: str) -> None:
    try:
        found = workers.call(read_page, "https://example.org/a", kind, charset, body, 200_000, 50, seconds=30)
    except PageError as error:
        found = {"text": str(error)}
    except LimitError as error:
        # A fault of a parser's own is told by its type; what may not be is a worker that ends.
        assert "ended the process" not in str(error)
        return
    assert found["text"].strip()
    for text in found.values():
        assert "\x00" not in text
        text.encode()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "any"


@fuzzed
@given(BODIES, st.sampled_from([".html", ".md", ".txt", ".csv", ".json", ".jsonl"]))
@example(b"<p x " * 1_000, ".html")
@example(b"[" * 5_000, ".md")
@example(b"," * 20_000 + b"\n," * 20_000, ".csv")
@example(b"[" * 200_000, ".json")
def test_any_document_is_read_or_refused(workers: Workers, file: Path, body: bytes, suffix: str) -> None:
    file.write_bytes(body)
    try:
        pieces, _ = workers.call(read_pieces, str(file), suffix, 10_000_000, 3.0, seconds=30)
    except (DocumentError, LimitError) as error:
        assert "ended the process" not in str(error)
        assert "\n" not in str(error)
        return
    assert all(isinstance(piece["text"], str) for piece in pieces)
