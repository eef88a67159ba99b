"""`convcoa index`, and the commands that search what it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
from langgraph_convcoa.retrieval.index.index import Index, open_or_create
from tests.actions.web.site import Served, Site, article
from tests.cli.commands import asked_of, convcoa, error_of
from tests.fake_encoder import WordEncoder

pytestmark = pytest.mark.usefixtures("encoder")


@pytest.fixture
def made(docs: Path, tmp_path: Path) -> Path:
    convcoa("index", docs, "--out", tmp_path / "made", code=0)
    return tmp_path / "made"


def test_index_says_what_it_did(docs: Path, tmp_path: Path, encoder: WordEncoder) -> None:
    arguments = ("index", docs, "--out", tmp_path / "made", "--dtype", "int8", "--json")
    report = json.loads(convcoa(*arguments).stdout)
    assert {name: report[name] for name in ("added", "updated", "unchanged", "passages", "patterns", "dtype")} == {
        "added": 2, "updated": 0, "unchanged": 0, "passages": 2, "patterns": 4, "dtype": "int8",
    }  # fmt: skip
    encoder.encoded.clear()
    (docs / "sparsemax.txt").write_text("Sparsemax was introduced in 2016.")
    (docs / "new.txt").write_text("Entmax came later.")
    report = json.loads(convcoa(*arguments).stdout)
    assert (report["added"], report["updated"], report["unchanged"]) == (1, 1, 1)
    assert not any("Hopfield" in text for text in encoder.encoded)
    result = convcoa("index", docs, "--out", tmp_path / "made")
    assert "0 documents added, 0 updated, 3 unchanged; 3 passages, 6 patterns as int8" in result.stdout


def test_what_is_gone_is_deleted_on_request(docs: Path, made: Path) -> None:
    (docs / "sparsemax.txt").unlink()
    assert "1 unchanged; 2 passages" in convcoa("index", docs, "--out", made).stdout
    assert "0 updated, 1 unchanged, 1 deleted; 1 passages" in convcoa("index", docs, "--out", made, "--prune").stdout


def test_what_cannot_be_watched_is_told_before_anything_is_made(docs: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    for path in ("https://example.org/sitemap.xml", docs / "nowhere.md"):
        told = error_of(convcoa("index", path, "--out", out, "--watch"))
        assert "--watch follows files and folders" in told or "does not exist" in told
    assert not out.exists()


def test_an_index_of_mostly_replaced_documents_is_compacted(docs: Path, made: Path) -> None:
    for version in range(3):
        (docs / "sparsemax.txt").write_text(f"Version {version} of the text.")
        assert convcoa("index", docs, "--out", made).exit_code == 0
    assert len(list(made.glob("*.bin"))) == 1
    assert Index(made).head.rows <= 6


@pytest.mark.parametrize("what", ["search", "ask", "docs", "chat"])
def test_an_index_stands_where_documents_stand(made: Path, docs: Path, encoder: WordEncoder, what: str) -> None:
    (docs / "sparsemax.txt").unlink()
    encoder.encoded.clear()
    result = asked_of(made, "Who introduced sparsemax?", what)
    assert result.exit_code == 0, result.output
    assert "Martins" in result.stdout
    # The passages with their titles are; to judge an answer, some are encoded again without.
    assert not any(text.startswith("sparsemax\n") for text in encoder.encoded)


def test_several_paths_keep_their_names_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "notes.txt").write_text(f"Notes of {folder}.")
    Path("notes.txt").write_text("Notes of all.")
    convcoa("index", "a", "b", "notes.txt", "--out", "made", code=0)
    passages = [passage.document for passage in read(Index("made").snapshot())]
    assert sorted(str(passage.id) for passage in passages) == ["a/notes.txt", "b/notes.txt", "notes.txt"]
    assert {passage.metadata["source"] for passage in passages} == {"a/notes.txt", "b/notes.txt", "notes.txt"}
    # The index's own files are no documents.
    assert "0 documents added" in convcoa("index", "a", "b", "notes.txt", "--out", "made").stdout


def test_what_cannot_be_indexed_is_one_line(docs: Path, made: Path, tmp_path: Path) -> None:
    assert "does not exist" in error_of(convcoa("index", tmp_path / "nowhere", "--out", tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    assert "holds other files" in error_of(convcoa("index", docs, "--out", docs))
    assert "--dtype must be one of float32, int8, not 'int4'" in error_of(
        convcoa("index", docs, "--out", made, "--dtype", "int4")
    )
    assert "as float32, not int8" in error_of(convcoa("index", docs, "--out", made, "--dtype", "int8"))
    assert "holds no index" in error_of(convcoa("ask", "Who?", "--index", docs))
    assert "cannot be used together" in error_of(convcoa("ask", "Who?", "--index", made, "--docs", docs))
    assert "convcoa ask QUESTION --docs PATH" in error_of(convcoa("ask", "Who?"))
    (made / "patterns.1.bin").write_bytes(b"short")
    assert "patterns.1.bin is cut short" in error_of(convcoa("search", made, "who"))


@pytest.mark.parametrize("command", ["ask", "search"])
def test_an_index_of_another_encoder_is_one_line_before_the_turn_begins(
    tmp_path: Path, encoder: WordEncoder, command: str
) -> None:
    made = tmp_path / "made"
    open_or_create(made, EmbeddingsEncoder(DeterministicFakeEmbedding(size=8), name="fake"))
    arguments = ("ask", "Who?", "--index", made) if command == "ask" else ("search", made, "Who?")
    assert "was built with the encoder 'fake'" in error_of(convcoa(*arguments))


def test_a_collection_of_passages_is_indexed_under_its_own_ids(tmp_path: Path, encoder: WordEncoder) -> None:
    folder = tmp_path / "collection" / "part"
    folder.mkdir(parents=True)
    (folder / "wiki.tsv").write_text("id\ttext\ttitle\n7\tBorn in 1815.\tAda\n8\tHe was a lord.\tByron\n", encoding="utf-8")
    (folder / "web.jsonl").write_text('{"id": "a_p0", "contents": "A page of the web."}\n', encoding="utf-8")
    out = tmp_path / "made"
    result = convcoa("index", tmp_path / "collection", "--passages", "--out", out, "--json")
    assert (report := json.loads(result.stdout))["added"] == 3, report
    found = json.loads(convcoa("search", out, "Who was born in 1815?", "--json").stdout)
    assert found[0]["id"] == "7"
    (folder / "web.jsonl").write_text('{"id": "a_p0"}\n', encoding="utf-8")
    assert "web.jsonl, line 1: `text`" in error_of(convcoa("index", folder / "web.jsonl", "--passages", "--out", out))


@pytest.mark.slow
def test_a_site_is_indexed_and_asked_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trafilatura")
    pages = {f"/{n}": Served(article(f"Bridge {n}", f"The bridge number {n} was opened in {1930 + n}.")) for n in (1, 2)}
    with Site(pages) as site:
        monkeypatch.setattr("langgraph_convcoa.actions.web.documents.Guard", site.guard)
        listed = "".join(f"<url><loc>{site.url(path)}</loc></url>" for path in ("/1", "/2", "/gone"))
        pages["/sitemap.xml"] = Served(f"<urlset>{listed}</urlset>", kind="text/xml")
        out = tmp_path / "made"
        result = convcoa("index", site.url("/sitemap.xml"), "--out", out)
        assert "2 documents added" in result.stdout, result.output
        assert f"warning: skipped: {site.url('/gone')} the site answered with status 404" in result.stderr
        assert "warning: skipped: 1 of 3 files" in result.stderr
        (first, *_) = json.loads(convcoa("search", site.url("/1"), "When was it opened?", "--json").stdout)
        assert (first["id"], "1931" in first["text"]) == (site.url("/1"), True)
        assert site.asked["/1"] == 1
    refused = error_of(convcoa("search", "http://127.0.0.1:9/", "Who?"))
    assert "http://127.0.0.1:9/ cannot be read" in refused
    assert "private or local network" in error_of(convcoa("ask", "Who?", "--docs", "http://127.0.0.1/"))


def test_a_folder_of_shards_says_what_to_use_instead(docs: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    assert convcoa("index", docs, "--out", shards / "shard-1-of-1").exit_code == 0
    for arguments in (
        ("search", shards, "what is sparsemax?"),
        ("ask", "Who?", "--index", shards),
        ("ask", "Who?", "--docs", shards),
    ):
        told = error_of(convcoa(*arguments))
        assert "shards of an earlier release. The search over shards was removed: make one index of the documents" in told
        assert "`HopfieldRetriever.from_engine`" in told
    assert "sparsemax" in convcoa("search", shards / "shard-1-of-1", "what is sparsemax?").stdout.lower()
