"""What an index says of itself when its files are not what they were: one line, and never other passages in silence."""

import errno
import os
import random
import shutil
import sqlite3

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError
from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
from langgraph_convcoa.retrieval.index.index import Index, Snapshot, open_or_create
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.conftest import BagOfWords, put


class Broken(BagOfWords):
    """Gives vectors with a NaN, or of another length, after a while."""

    def __init__(self, fault):
        super().__init__(dimension=32)
        self.fault = fault

    def encode_passages(self, texts, progress=False):
        rows = super().encode_passages(texts)
        if self.fault == "nan":
            rows[-1, 0] = np.nan
        return rows[:, :-1] if self.fault == "length" else rows


def documents(count):
    return [
        Document(f"Subject{i} is here. It is number {i}. It is well.", id=f"d{i}", metadata={"n": i}) for i in range(count)
    ]


@pytest.fixture
def path(tmp_path, small):
    index = open_or_create(tmp_path / "index", small, dtype="int8")
    put(index, documents(40), small)
    index.delete(["d7"])
    return index.path


def one_line(error):
    assert isinstance(error, ConvCoAError)
    assert "\n" not in str(error)
    return str(error)


def search(path, encoder):
    retriever = HopfieldRetriever.from_pretrained(path, encoder=encoder, k=40)
    return [(d.id, d.page_content, d.metadata) for d in retriever.invoke("subject3 is number 5")]


@pytest.mark.parametrize("fault", ["nan", "length"])
def test_unusable_vectors_leave_the_index_as_it_was(path, fault):
    index = Index(path)
    with pytest.raises(RetrievalError, match=r"NaN|shape") as caught:
        put(index, [Document("More.", id="more")], Broken(fault))
    one_line(caught.value)
    assert len(Index(path)) == 39
    index.verify()


def test_another_encoder(path):
    for other in (BagOfWords("other", dimension=32), BagOfWords("bag", dimension=16)):
        with pytest.raises(RetrievalError, match=r"built with|vectors of length 32") as caught:
            HopfieldRetriever.from_pretrained(path, encoder=other)
        one_line(caught.value)
        with pytest.raises(RetrievalError, match=r"built with|vectors of length 32"):
            put(Index(path), documents(1), other)


def test_an_index_that_changes_its_encoder_under_a_reader(path, small):
    reader = HopfieldRetriever.from_pretrained(path, encoder=small)
    other = BagOfWords("other", dimension=32)
    HopfieldRetriever.from_documents(documents(3), encoder=other).save_pretrained(path)
    with pytest.raises(RetrievalError, match="built with the encoder 'other', not 'bag'"):
        reader.invoke("subject3")


def test_embeddings_without_a_name_cannot_be_known_again(tmp_path):
    encoder = EmbeddingsEncoder(DeterministicFakeEmbedding(size=8))
    with pytest.raises(RetrievalError, match="have no model name") as caught:
        open_or_create(tmp_path / "index", encoder)
    one_line(caught.value)
    assert not (tmp_path / "index").exists()


def test_another_version(path, small):
    memory = HopfieldRetriever.from_texts(["A."], encoder=small)
    for version in (1, 99):
        with sqlite3.connect(path / "index.sqlite") as connection:
            connection.execute(f"PRAGMA user_version={version}")
        connection.close()
        for use in (Index, memory.save_pretrained):
            with pytest.raises(RetrievalError, match=f"version {version}, and this library reads version 2; remove") as caught:
                use(path)
            one_line(caught.value)


def test_shards_were_removed(path, small):
    shards = path.parent / "shards"
    shards.mkdir()
    path.rename(shards / "shard-1-of-1")
    removed = "search over shards was removed: make one index of the documents .*, or load them into an engine .*from_engine"
    with pytest.raises(RetrievalError, match=f"shards holds shards of an earlier release. The {removed}"):
        HopfieldRetriever.from_pretrained(shards, encoder=small)
    with pytest.raises(InputError, match=removed):
        HopfieldRetriever.from_shards([shards / "shard-1-of-1"], encoder=small, timeout=5)
    assert len(HopfieldRetriever.from_pretrained(shards / "shard-1-of-1", encoder=small).corpus)


def test_a_folder_that_is_no_index(tmp_path, small):
    with pytest.raises(RetrievalError, match="holds no index"):
        Index(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RetrievalError, match=r"holds other files \(notes.txt\)"):
        open_or_create(tmp_path, small)
    (tmp_path / "theirs").mkdir()
    with sqlite3.connect(tmp_path / "theirs" / "index.sqlite") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(RetrievalError, match="another program"):
        Index(tmp_path / "theirs")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "index.sqlite").write_text("no database " * 100)
    with pytest.raises(RetrievalError, match="is damaged"):
        Index(tmp_path / "text")
    with pytest.raises(RetrievalError, match="cannot be used for an index"):
        open_or_create(tmp_path / "notes.txt", small)


@pytest.mark.parametrize("name", ["patterns.1.bin", "index.sqlite"])
@pytest.mark.parametrize("share", [0, 0.2, 0.99])
def test_a_file_cut_short(path, small, name, share):
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: int(share * len(data))])
    with pytest.raises(ConvCoAError) as caught:
        Index(path).verify()
    assert str(path) in one_line(caught.value)


def test_a_pattern_file_that_is_missing_or_of_another_index(path, tmp_path, small):
    other = open_or_create(tmp_path / "other", small, dtype="int8")
    put(other, documents(50)[10:], small)
    shutil.copy(other.path / "patterns.1.bin", path / "patterns.1.bin")
    with pytest.raises(RetrievalError, match=r"patterns 0 to \d+ of patterns.1.bin do not match their checksum"):
        search(path, small)
    (path / "patterns.1.bin").unlink()
    with pytest.raises(RetrievalError, match=r"patterns.1.bin is missing"):
        Index(path)


def test_a_file_cut_short_while_it_is_open(path, small):
    retriever = HopfieldRetriever.from_pretrained(path, encoder=small)
    retriever.invoke("subject3")
    with (path / "patterns.1.bin").open("r+b") as stream:
        stream.truncate(32)
    with pytest.raises(RetrievalError, match="is cut short"):
        retriever.invoke("subject3")


def test_every_flipped_bit_of_the_patterns_is_found_before_they_are_used(path, small):
    file, chance = path / "patterns.1.bin", random.Random(0)
    good = file.read_bytes()
    for _ in range(30):
        data = bytearray(good)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        with pytest.raises(RetrievalError, match="checksum"):
            search(path, small)
        with pytest.raises(RetrievalError, match="checksum"):
            Index(path).verify()


@pytest.mark.slow
def test_no_flipped_bit_of_the_database_changes_a_result_in_silence(path, small, tmp_path):
    """The database has no checksum of its own: whatever is read of it is either what was written or an error."""
    right = search(path, small)
    good = (path / "index.sqlite").read_bytes()
    chance = random.Random(0)
    found = 0
    for _ in range(150):
        data = bytearray(good)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (path / "index.sqlite").write_bytes(data)
        try:
            assert search(path, small) == right
        except ConvCoAError as error:
            one_line(error)
            found += 1
    assert found > 10


@pytest.mark.parametrize("metadata", [{"when": object()}, {1: "one"}, {"s": {1, 2}}, {"b": b"bytes"}])
def test_metadata_that_cannot_be_stored_is_named(path, small, metadata):
    with pytest.raises(InputError, match=f"The metadata {next(iter(metadata))!r}") as caught:
        put(Index(path), [Document("Text.", id="x", metadata=metadata)], small)
    one_line(caught.value)
    assert len(Index(path)) == 39


def test_unusual_text_and_ids_come_back(path, small):
    texts = ["\x00 nul", "\ud800 half a character", "emoji 🍎 and 苹果", "tab\tand\u2028line"]
    index = Index(path)
    put(index, [Document(t, id=f"{t[-4:]}'\"; --", metadata={"t": t, "nan": 1e400}) for t in texts], small)
    found = [passage.document for passage in read(index.snapshot())][-4:]
    assert [passage.metadata["t"] for passage in found] == texts
    # What databases and checkpoints cannot store of a text is replaced as it comes in.
    assert [passage.page_content for passage in found] == ["\ufffd nul", "\ufffd half a character", *texts[2:]]
    with pytest.raises(InputError, match="half a character"):
        put(index, [Document("x", id="\ud800")], small)
    index.verify()


def test_an_empty_index_and_a_filter_that_matches_nothing_find_nothing(tmp_path, small, path):
    empty = HopfieldRetriever(corpus=open_or_create(tmp_path / "empty", small), encoder=small)
    assert empty.invoke("anything") == []
    assert HopfieldRetriever.from_pretrained(path, encoder=small, filter={"n": -1}).invoke("subject3") == []
    index = Index(path)
    index.delete([f"d{i}" for i in range(40) if i != 7])
    assert HopfieldRetriever.from_pretrained(path, encoder=small).invoke("subject3") == []
    index.compact()
    assert HopfieldRetriever.from_pretrained(path, encoder=small).invoke("subject3") == []
    with pytest.raises(InputError, match="k must be"):
        HopfieldRetriever.from_pretrained(path, encoder=small, k=0)


def test_a_read_only_folder_is_searched_and_not_written(path, small):
    right = search(path, small)
    for file in [*path.iterdir(), path]:
        file.chmod(0o555 if file.is_dir() else 0o444)
    try:
        assert search(path, small) == right
    finally:
        path.chmod(0o755)


def test_the_remains_of_a_first_save_that_was_killed(tmp_path, small):
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "index.sqlite").touch()
    (folder / "patterns.1.bin").write_bytes(b"half")
    with pytest.raises(RetrievalError, match="first save was not finished"):
        Index(folder)
    index = open_or_create(folder, small)
    put(index, documents(2), small)
    index.verify()


def test_rows_behind_the_last_commit_are_ignored_and_written_over(path, small):
    before = search(path, small)
    with (path / "patterns.1.bin").open("ab") as stream:
        stream.write(b"left behind by a writer that was killed" * 100)
    assert search(path, small) == before
    index = Index(path)
    put(index, [Document("More is here.", id="more")], small)
    index.verify()
    assert "more" in [identity for identity, *_ in search(path, small)]


def test_a_disk_that_is_full_while_compacting_leaves_the_index_and_no_part_of_a_file(path, small, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    right, index = search(path, small), Index(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RetrievalError, match=r"No space left on device.*make room on the disk") as caught:
            index.compact()
        one_line(caught.value)
    assert [file.name for file in path.glob("*.bin")] == ["patterns.1.bin"]
    assert search(path, small) == right
    index.compact()
    index.verify()
    assert search(path, small) == right


def test_a_pattern_file_that_was_replaced_since_the_head_was_read_is_looked_for_again(path, small, monkeypatch):
    index, load, lost = Index(path), Snapshot.load, []

    def late(*arguments):
        if not lost:
            lost.append(True)
            raise FileNotFoundError(2, "No such file", "patterns.1.bin")
        return load(*arguments)

    monkeypatch.setattr(Snapshot, "load", late)
    assert len(index) == 39
    assert lost
