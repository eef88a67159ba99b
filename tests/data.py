"""Writes data sets to files, in the format that a file's name gives, and makes PDFs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Query


def write_rows(path: Path, rows: Any) -> Path:
    """Write rows: a text, JSON lines (`.jsonl`; a string is a line) or one JSON value; gzipped for `.gz`. Returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = rows if isinstance(rows, str) else "" if ".jsonl" in path.name else json.dumps(rows)
    if not text:
        text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_dataset(folder: Path, queries: Iterable[Any], corpus: Iterable[Any] = (), suffix: str = ".jsonl") -> Path:
    """Write the queries and passages of a data set, given as rows or as `Query` and `Document`; returns the folder."""
    write_rows(folder / f"queries{suffix}", [_query_row(one) if isinstance(one, Query) else one for one in queries])
    write_rows(folder / f"corpus{suffix}", [_passage_row(one) if isinstance(one, Document) else one for one in corpus])
    return folder


def _query_row(query: Query) -> dict[str, Any]:
    row = {name: getattr(query, name) for name in ("id", "question", "history", "gold", "rewrite", "answer", "split")}
    return {name: value for name, value in {**row, "conversation_id": query.conversation}.items() if value}


def _passage_row(passage: Document) -> dict[str, Any]:
    return {"id": passage.id, "title": passage.metadata.get("title", ""), "text": passage.page_content}


def pdf_bytes(*pages: str) -> bytes:
    """A PDF with one line of text on each page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        page = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append((page % len(objects)).encode())
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(kids)}] >>".encode()
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + head + table + tail
