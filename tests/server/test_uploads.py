"""Collections that are made on the page: uploads within limits, what is skipped and why, and what an answer cites of them."""

from __future__ import annotations

import io
import json
import stat
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.cli.serve import open_index
from langgraph_convcoa.retrieval.documents.load import Spool, load_documents, stream_file
from langgraph_convcoa.retrieval.documents.worker import Workers
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.server import collections as module
from langgraph_convcoa.server import uploads as uploads_module
from langgraph_convcoa.server.collections import Collection, Collections
from langgraph_convcoa.server.uploads import Jobs, plain_name
from tests.bounds import SECONDS, run_python, wait_until
from tests.data import pdf_bytes
from tests.fake_encoder import WordEncoder
from tests.server.served import Served

BEES = b"# Bees\n\nBees make honey of nectar. A hive holds a queen."


@pytest.fixture
def collection(server: Served) -> Iterator[str]:
    made: str = server.ask("POST", "/convcoa/collections", json={"name": "  Of the \n test "}).json()["id"]
    yield made
    server.ask("DELETE", f"/convcoa/collections/{made}")


def uploaded(server: Served, collection: str, *files: tuple[str, bytes]) -> dict[str, Any]:
    response = server.ask("POST", f"/convcoa/collections/{collection}/files", files=[("files", file) for file in files])
    assert response.status_code == 202, response.text
    job = response.json()["job"]
    told: dict[str, Any] = {}

    def done() -> bool:
        told.update(server.ask("GET", f"/convcoa/jobs/{job}").json())
        return told["status"] in ("done", "failed")

    wait_until(done, "the upload is indexed")
    return told


def held(server: Served, collection: str) -> dict[str, Any]:
    found = server.ask("GET", "/convcoa/collections").json()
    return next(one for one in found if one["id"] == collection)


def test_files_become_documents_that_answers_cite(server: Served, collection: str) -> None:
    told = uploaded(server, collection, ("bees.md", BEES), ("rows.jsonl", b'{"id": "x", "text": "Ants carry leaves."}\n'))
    assert (told["status"], told["skipped"], told["eta_seconds"]) == ("done", [], 0)
    assert told["done"] == told["total"] == len(BEES) + 42
    assert told["files_done"] == told["files_total"] == 2
    about = held(server, collection)
    assert (about["name"], about["documents"], about["passages"]) == ("Of the test", 2, 2)
    assert (about["status"], about["read_only"], about["accepts_files"]) == ("ready", False, True)
    listed = server.ask("GET", f"/convcoa/collections/{collection}/documents").json()
    assert listed[0] == {"source": "bees.md", "title": "Bees", "passages": 1, "kind": "md"}
    query = {"collection": collection, "id": "bees.md", "quote": "Bees make\nhoney"}
    passage = server.ask("GET", "/convcoa/passages", params=query).json()
    assert passage["text"][slice(*passage["spans"][0])] == "Bees make honey"
    thread = server.ask("POST", "/threads", json={"metadata": {"collection": collection}}).json()
    assert thread["metadata"]["collection"] == collection
    # The model is scripted; what it was shown is of this collection.
    server.turn(thread["thread_id"], "What do bees make?")
    assert "Bees make honey of nectar" in server.model.prompts[-1]


def test_a_file_of_the_same_name_takes_the_place_of_the_first(server: Served, collection: str) -> None:
    uploaded(server, collection, ("a.jsonl", b'"One text."\n"Another text."\n'))
    assert held(server, collection)["passages"] == 2
    uploaded(server, collection, ("a.jsonl", b'"One text."\n'), ("b.jsonl", b'"One text."\n'))
    assert held(server, collection)["passages"] == 2
    gone = server.ask("DELETE", f"/convcoa/collections/{collection}/documents", params={"source": "a.jsonl"})
    assert (gone.status_code, held(server, collection)["documents"]) == (204, 1)
    again = server.ask("DELETE", f"/convcoa/collections/{collection}/documents", params={"source": "a.jsonl"})
    assert again.status_code == 404


def bomb() -> bytes:
    """A docx whose text is a thousand times as large as its file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", b"0" * 100_000_000)
    return packed.getvalue()


HOSTILE = {
    "broken.pdf": b"%PDF-1.7 nothing follows", "program.exe": b"MZ\x90", "empty.txt": b"   ", "rows.json": b"[" * 20_000,
    "rows.json.gz": b"\x1f\x8b broken", "no-suffix": b"text",
}  # fmt: skip


def test_what_cannot_be_read_is_named_and_the_others_go_on(server: Served, collection: str) -> None:
    told = uploaded(server, collection, *HOSTILE.items(), ("bees.md", BEES))
    assert told["status"] == "done"
    assert {entry["name"] for entry in told["skipped"]} == set(HOSTILE)
    assert all(len(entry["reason"]) > 5 for entry in told["skipped"])
    assert str(server.folder) not in str(told["skipped"])
    assert held(server, collection)["documents"] == 1


@pytest.mark.slow
def test_a_zip_bomb_is_named(server: Served, collection: str) -> None:
    told = uploaded(server, collection, ("bomb.docx", bomb()), ("bees.md", BEES))
    assert [entry["name"] for entry in told["skipped"]] == ["bomb.docx"]
    assert held(server, collection)["documents"] == 1


def test_names_lead_nowhere(server: Served, collection: str) -> None:
    names = ["../../../../tmp/evil.md", "/etc/passwd.md", "..\\..\\boot.md", "con\x00trol.md", ".hidden.md", "<img src=x>.md"]
    uploaded(server, collection, *((name, BEES) for name in names))
    sources = {one["source"] for one in server.ask("GET", f"/convcoa/collections/{collection}/documents").json()}
    assert {"evil.md", "passwd.md", "boot.md", "hidden.md", "<img src=x>.md"} <= sources
    assert not any("/" in source or "\\" in source or "\0" in source for source in sources)
    assert plain_name("a" * 500 + ".md") == "a" * 150 + ".md"
    assert plain_name("\ud800é.txt").endswith("é.txt")


def test_a_name_that_is_long_in_bytes_is_cut_and_its_companions_are_kept(server: Served, collection: str) -> None:
    told = uploaded(server, collection, ("日本語" * 29 + ".md", BEES), ("bees.md", BEES), ("𝕏" * 200, BEES))
    assert (told["status"], told["files_done"], len(told["skipped"])) == ("done", 2, 1)
    sources = [one["source"] for one in server.ask("GET", f"/convcoa/collections/{collection}/documents").json()]
    assert sources == ["日本語" * 16 + "日本.md", "bees.md"]


def test_an_upload_leaves_no_copies_also_if_it_cannot_be_copied(
    server: Served, collection: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("langgraph_convcoa.server.uploads.shutil.copyfileobj", full)
        response = server.ask("POST", f"/convcoa/collections/{collection}/files", files=[("files", ("a.md", BEES))])
    assert response.status_code == 500
    assert uploaded(server, collection, ("a.md", BEES))["status"] == "done"
    assert not list(tmp_path.iterdir())


def test_a_slow_file_delays_no_other_collection_and_ends_with_its_own(
    server: Served, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = stream_file

    def reading(place: Path, spool: Spool, workers: Workers, **options: Any) -> Any:
        if options["name"] == "slow.md":
            workers.call(time.sleep, 10 * SECONDS, seconds=10 * SECONDS)
        yield from read(place, spool, workers, **options)

    monkeypatch.setattr("langgraph_convcoa.server.uploads.stream_file", reading)
    path = f"/convcoa/collections/{collection}/files"
    job = server.ask("POST", path, files=[("files", ("slow.md", BEES))]).json()["job"]
    other = server.ask("POST", "/convcoa/collections", json={"name": "Other"}).json()["id"]
    assert uploaded(server, other, ("bees.md", BEES))["status"] == "done"
    assert server.ask("GET", f"/convcoa/jobs/{job}").json()["status"] == "running"
    assert server.ask("DELETE", f"/convcoa/collections/{collection}").status_code == 204
    wait_until(lambda: server.ask("GET", f"/convcoa/jobs/{job}").json()["message"] == "stopped", "its reading ends")
    server.ask("DELETE", f"/convcoa/collections/{other}")


def test_a_file_has_a_budget_that_does_not_grow_with_it(
    server: Served, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "FILE_SECONDS", 0.001)
    told = uploaded(server, collection, ("slow.txt", b"A sentence. " * 50_000), ("bees.md", BEES))
    assert [(entry["name"], "takes longer than" in entry["reason"]) for entry in told["skipped"]] == [("slow.txt", True)]
    assert held(server, collection)["documents"] == 1


def test_a_file_of_many_rows_or_columns_is_refused(server: Served, collection: str) -> None:
    rows = b"[" + b",".join([b'"a"'] * 200_001) + b"]"
    told = uploaded(server, collection, ("rows.json", rows), ("wide.csv", b"," * 20_001 + b"\n1,2"))
    assert [entry["reason"].partition(":")[0] for entry in told["skipped"]] == [
        "holds more than 100,000 texts",
        "has more than 20,000 columns",
    ]


@pytest.mark.slow
def test_a_long_text_is_indexed_in_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "initials.txt"
    file.write_text("Mr. A. B. C. " * 1_000_000)
    megabytes, skipped = json.loads(run_python("-m", "tests.server.upload_memory", tmp_path / "collection", file).stdout)
    assert skipped == []
    assert megabytes < 300


def test_more_than_the_limit_is_refused_by_its_length_and_while_it_comes(server: Served, collection: str) -> None:
    path = f"/convcoa/collections/{collection}/files"
    response = server.ask("POST", path, files=[("files", ("big.txt", b"x" * 1_100_000))])
    assert response.status_code == 413
    assert "1 MB" in response.json()["detail"]

    def endless() -> Iterator[bytes]:
        yield b'--B\r\nContent-Disposition: form-data; name="files"; filename="g.txt"\r\n\r\n'
        for _ in range(15):
            yield b"y" * 100_000

    kind = {"content-type": "multipart/form-data; boundary=B"}
    assert server.ask("POST", path, content=endless(), headers=kind).status_code == 413
    for wrong in (b"", b"--B\r\nnonsense", b"--B--"):
        assert server.ask("POST", path, content=wrong, headers=kind).status_code in (400, 422)
    assert server.ask("POST", path, content=b"x", headers={"content-type": "multipart/form-data"}).status_code in (400, 422)
    assert held(server, collection)["status"] == "ready"


def test_collections_of_the_command_line_stay_as_they_are(server: Served) -> None:
    assert (held(server, "facts")["read_only"], held(server, "facts")["accepts_files"]) == (True, False)
    for method, path in (("DELETE", ""), ("DELETE", "/documents?source=x"), ("POST", "/files")):
        body = {"files": [("files", ("a.md", BEES))]} if method == "POST" else {}
        response = server.ask(method, f"/convcoa/collections/facts{path}", **body)
        assert response.status_code == 422
        assert "command line" in response.json()["detail"]


def test_collections_are_bounded_and_have_names(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "   ", None):
        assert server.ask("POST", "/convcoa/collections", json={"name": name}).status_code == 422
    monkeypatch.setattr(module, "MOST_COLLECTIONS", 0)
    assert "delete one first" in server.ask("POST", "/convcoa/collections", json={"name": "x"}).json()["detail"]


def test_a_deleted_collection_leaves_no_file_and_its_conversations_can_be_read(server: Served, collection: str) -> None:
    uploaded(server, collection, ("bees.md", BEES))
    thread = server.ask("POST", "/threads", json={"metadata": {"collection": collection}}).json()["thread_id"]
    server.turn(thread)
    assert server.ask("DELETE", f"/convcoa/collections/{collection}").status_code == 204
    assert not list((server.folder / "collections").rglob(f"{collection}*"))
    assert len(server.ask("GET", f"/convcoa/threads/{thread}").json()["rounds"]) == 1
    refused = server.ask("POST", f"/threads/{thread}/runs/wait", json={"input": {"question": "And?"}})
    assert (refused.status_code, "was deleted" in refused.json()["detail"]) == (404, True)


def test_the_folder_is_its_owners_alone_and_is_found_again(server: Served, collection: str) -> None:
    uploaded(server, collection, ("bees.md", BEES))
    folder = next((server.folder / "collections").rglob(f"{collection}/collection.json")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    server.service.collections._owned.clear()
    assert (held(server, collection)["name"], held(server, collection)["documents"]) == ("Of the test", 1)


def test_a_collection_that_failed_takes_no_files_and_stays_failed(server: Served, collection: str) -> None:
    found = server.service.collections.find("", collection)
    assert found is not None
    found.retriever, found.status, found.message = None, "failed", "the index is damaged"
    response = server.ask("POST", f"/convcoa/collections/{collection}/files", files=[("files", ("a.md", BEES))])
    assert (response.status_code, "the index is damaged" in response.json()["detail"]) == (422, True)
    assert held(server, collection)["status"] == "failed"


def test_a_server_that_is_killed_while_it_makes_a_collection_leaves_none(tmp_path: Path) -> None:
    def killed(folder: Path) -> Any:
        # As far as the first statement of SQLite.
        folder.mkdir()
        (folder / "index.sqlite").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Collections([], tmp_path, killed, "").add("", "Half")
    indexes = partial(open_index, encoder=WordEncoder(), graph=None)
    own = Collections([], tmp_path, indexes, "")
    assert own.find("", next(tmp_path.glob("*/*")).name) is None
    assert len(own.add("", "Whole").documents()) == 0
    # One of an earlier release, which wrote in the other order.
    half = next(path.parent for path in tmp_path.rglob("index.sqlite") if not path.stat().st_size)
    assert len(indexes(half).corpus) == 0


def test_a_collection_that_another_server_makes_or_deletes_is_seen(server: Served) -> None:
    other = Collections([], server.folder / "collections", server._index, "")
    made = other.add("", "Elsewhere")
    own = server.service.collections
    seen = own.find("", made.id)
    assert seen is not None
    assert seen.name == "Elsewhere"
    other.delete("", made)
    assert own.find("", made.id) is None


def test_two_files_of_one_name_in_an_upload_are_two_documents(server: Served, collection: str) -> None:
    told = uploaded(server, collection, ("a/read.me.md", BEES), ("b/read.me.md", b"# Ants\n\nAnts carry leaves."))
    assert (told["files_done"], told["skipped"]) == (2, [])
    sources = {one["source"] for one in server.ask("GET", f"/convcoa/collections/{collection}/documents").json()}
    assert sources == {"read.me.md", "read.me (2).md"}


def test_the_pdf_of_an_upload_is_kept_and_deleted_with_its_documents(server: Served, collection: str) -> None:
    place, content = f"/convcoa/collections/{collection}/files", pdf_bytes("Ants carry leaves.", "Bees make honey.")
    uploaded(server, collection, ("bees.pdf", content), ("bees.md", BEES))
    found = server.ask("GET", place, params={"source": "bees.pdf"})
    assert (found.status_code, found.content, found.headers["content-type"]) == (200, content, "application/pdf")
    assert found.headers["content-disposition"].startswith("inline")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["content-security-policy"].startswith("default-src 'none'; ")
    query = {"collection": collection, "id": "bees.pdf:page-2", "quote": ""}
    passage = server.ask("GET", "/convcoa/passages", params=query).json()
    assert (passage["pdf"], passage["page"], passage["source"]) == (True, 2, "bees.pdf")
    assert not server.ask("GET", "/convcoa/passages", params={**query, "id": "bees.md"}).json()["pdf"]
    for other in ("bees.md", "../collection.json", "../files/bees.pdf", "nothing.pdf", "", "/etc/passwd"):
        assert server.ask("GET", place, params={"source": other}).status_code == 404
    kept = next((server.folder / "collections").rglob("bees.pdf"))
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    # A newer one takes its place.
    newer = pdf_bytes("Bees sleep.")
    uploaded(server, collection, ("bees.pdf", newer))
    assert server.ask("GET", place, params={"source": "bees.pdf"}).content == newer
    assert server.ask("DELETE", f"/convcoa/collections/{collection}/documents", params={"source": "bees.pdf"}).is_success
    assert server.ask("GET", place, params={"source": "bees.pdf"}).status_code == 404
    assert not kept.exists()


def test_a_pdf_of_the_command_line_is_shown_but_nothing_beside_it(server: Served, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    for name in ("deep/bees.pdf", "later.pdf"):
        (docs / name).write_bytes(pdf_bytes("Bees make honey."))
    (tmp_path / "secret.pdf").write_bytes(b"secret")
    retriever = HopfieldRetriever.from_documents(load_documents(docs / "deep"), encoder=server.encoder)
    here = Collection("docs", "Docs", "docs", retriever, originals=docs / "deep")
    assert here.pdf("bees.pdf") == docs / "deep" / "bees.pdf"
    assert here.pdf("../later.pdf") is here.pdf("bees.md") is None
    (docs / "deep" / "bees.pdf").unlink()
    (docs / "deep" / "bees.pdf").symlink_to(tmp_path / "secret.pdf")
    assert here.pdf("bees.pdf") is None


def test_what_killed_servers_left_of_uploads_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    with Jobs(tmp_path / "uploads"):
        held = next(place for place in (tmp_path / "uploads").iterdir() if place.is_dir()) / "file"
        held.write_bytes(BEES)
        left = tmp_path / "uploads" / "killed"
        left.mkdir()
        (left / "file").write_bytes(BEES)
        left.with_suffix(".lock").touch()
        with Jobs(tmp_path / "uploads"):
            assert held.exists()
            assert not left.exists()
    assert list((tmp_path / "uploads").iterdir()) == []
