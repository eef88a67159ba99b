from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.corpus import StaleSnapshot, read
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, without_arithmetic
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.index.database import DATABASE
from langgraph_convcoa.retrieval.index.index import Index, open_or_create
from langgraph_convcoa.retrieval.index.writer import BLOCK_ROWS
from langgraph_convcoa.retrieval.memory_corpus import build_memory
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.bounds import run_in_threads
from tests.retrieval.conftest import BagOfWords, put

LONG = "Apples grow on trees. Pears fall down. Plums rot fast. Figs are sweet."


@pytest.fixture
def index(tmp_path, small):
    return open_or_create(tmp_path / "index", small)


def documents(count, start=0):
    return [Document(f"{LONG} It is number {i}.", id=f"d{i}", metadata={"n": i}) for i in range(start, start + count)]


def pattern_file(index):
    return index.path / index.head.file


def patterns_of(index):
    view = index.snapshot()
    rows = [view.patterns.rows(*view.patterns.offsets[number : number + 2]) for number in view.numbers]
    return dict(zip(alive_ids(index), rows, strict=True))


def alive_passages(index):
    return [passage.document for passage in read(index.snapshot())]


def alive_ids(index):
    return [passage.id for passage in alive_passages(index)]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_index_holds_the_same_patterns_as_a_memory(tmp_path, small, dtype):
    index = open_or_create(tmp_path / "index", small, dtype=dtype)
    assert put(index, documents(700), small) == [f"d{i}" for i in range(700)]
    memory = build_memory(documents(700), small, dtype=dtype)
    again = Index(tmp_path / "index")
    np.testing.assert_array_equal(again.snapshot().patterns.values, memory.patterns.values)
    np.testing.assert_array_equal(again.snapshot().patterns.offsets, memory.patterns.offsets)
    if dtype == "int8":
        np.testing.assert_array_equal(again.snapshot().patterns.scales, memory.patterns.scales)
    assert list(read(again.snapshot())) == list(read(memory))
    assert (len(again), again.head.dimension, len(again.snapshot().listed())) == (700, 32, 700)


def test_the_pattern_file_is_hardly_larger_than_the_patterns(index, small):
    put(index, documents(700), small)
    raw = index.snapshot().patterns.values.nbytes
    assert raw <= pattern_file(index).stat().st_size <= 1.05 * raw


def test_what_was_added_is_there_for_whoever_has_it_open_and_for_whoever_opens_it(index, small):
    other = Index(index.path)
    put(index, documents(2), small)
    assert alive_ids(other) == alive_ids(Index(index.path)) == ["d0", "d1"]


def test_documents_that_are_there_are_not_encoded_again(index, small):
    put(index, documents(600), small)
    small.passages.clear()
    assert len(put(index, documents(601), small)) == 601
    assert small.passages
    assert all("600" in text or text in LONG for text in small.passages)
    assert len(index) == 601


def test_documents_without_an_id_are_known_by_their_text(index, small):
    (first,) = put(index, [Document("Apples grow.")], small)
    assert put(index, [Document("Apples grow.", metadata={"n": 1}), Document("Pears fall.")], small)[0] == first
    assert len(index) == 2


def test_metadata_with_keys_of_several_kinds_is_compared_as_json_has_it(index, small):
    document = Document("Apples grow.", id="a", metadata={"of": {10: "x", 9: "y", "b": 2}})
    assert put(index, [document], small) == put(index, [document], small) == ["a"]


def test_an_id_with_another_content_is_an_error_that_leaves_the_index_as_it_was(index, small):
    put(index, documents(3), small)
    with pytest.raises(RetrievalError, match=r"'d1' is there already with another content: call update\(documents\)"):
        put(index, [Document("New.", id="new"), Document("Other.", id="d1")], small)
    assert alive_ids(index) == ["d0", "d1", "d2"]


def test_an_id_used_twice_in_one_call(index, small):
    assert put(index, [*documents(1), *documents(1)], small) == ["d0"]
    with pytest.raises(RetrievalError, match="'a' is used twice"):
        put(index, [Document("One.", id="a"), Document("Two.", id="a")], small)
    many = [*documents(300), Document("Other.", id="d0")]
    with pytest.raises(RetrievalError, match="'d0' is there already"):
        put(index, many, small)


def test_the_id_of_another_documents_passage(index, small):
    put(index, [Document("word " * 200, id="book")], small)
    assert "book#2" in alive_ids(index)
    with pytest.raises(RetrievalError, match="'book#2' of a passage of 'book#2' is that of a passage of 'book'"):
        put(index, [Document("Mine.", id="book#2")], small)


def test_update_replaces_by_id_and_adds_what_is_new(index, small):
    put(index, [*documents(3), Document("word " * 200, id="book")], small)
    small.passages.clear()
    changed = [*documents(1), Document("Changed.", id="d1"), Document("New.", id="new"), Document("Short.", id="book")]
    [done] = index.ingest(changed, small, replace=True)
    assert (done.added, done.updated, done.unchanged, done.passages, done.given) == (1, 2, 1, 3, 4)
    assert done.ids == ["d0", "d1", "new", "book"]
    assert not any("number 0" in text for text in small.passages)
    texts = {passage.id: passage.page_content for passage in alive_passages(index)}
    assert texts["d1"] == "Changed."
    assert texts["book"] == "Short."
    assert sorted(texts) == ["book", "d0", "d1", "d2", "new"]
    index.verify()


def test_an_update_that_leaves_a_document_without_text_is_refused(index, small):
    put(index, documents(2), small)
    with pytest.raises(RetrievalError, match="'d1' would be left without text; delete it"):
        put(index, [Document(" ", id="d1")], small, replace=True)


def test_documents_without_text_are_left_out(index, small, caplog):
    assert put(index, [Document(""), Document(" \n"), *documents(1)], small) == ["d0"]
    assert "Left out 2 document(s) without text" in caplog.text
    assert put(index, [], small) == []
    assert put(index, [Document("")], small) == []


def test_delete_takes_whole_documents_and_their_text(index, small):
    put(index, [*documents(3), Document("secretword " * 200, id="book")], small)
    index.delete(["d1", "book"])
    assert alive_ids(index) == ["d0", "d2"]
    assert len(index) == 2
    assert index.snapshot().allowed(None).tolist()[:3] == [True, False, True]
    assert b"secretword" not in (index.path / "index.sqlite").read_bytes()
    index.verify()
    put(index, documents(1, start=1), small)
    assert alive_ids(index) == ["d0", "d2", "d1"]


def test_deleting_what_is_not_there_deletes_nothing(index, small):
    put(index, [*documents(2), Document("word " * 200, id="book")], small)
    commits = index.head.commits
    for ids in ([], ["nobody"], "nobody"):
        assert index.delete(ids) == []
    with pytest.raises(InputError, match="a passage of 'book'"):
        index.delete(["d0", "book#1"])
    with pytest.raises(InputError, match="a text, not 3"):
        index.delete([3])
    assert len(index.snapshot().listed()) == 3
    assert index.head.commits == commits
    assert index.delete(["d0", "nobody"]) == ["d0"]


def test_compacting_keeps_what_is_alive_and_frees_the_rest(index, small):
    put(index, documents(700), small)
    kept = [f"d{i}" for i in range(700) if i % 3]
    index.delete([f"d{i}" for i in range(0, 700, 3)])
    before = patterns_of(index)
    size = pattern_file(index).stat().st_size
    reader = Index(index.path)
    old = reader.snapshot()
    index.compact()
    assert alive_ids(index) == alive_ids(reader) == kept
    assert index.snapshot().allowed(None) is None
    for name, rows in patterns_of(index).items():
        np.testing.assert_array_equal(rows, before[name])
    assert list(index.path.glob("*.bin")) == [pattern_file(index)]
    assert pattern_file(index).stat().st_size < 0.7 * size
    # A search that began before goes on over what it saw.
    assert old.patterns.values.shape[0] > index.snapshot().patterns.values.shape[0]
    assert old.fetch([1])[0].document.id == "d1"
    index.verify()
    put(index, documents(1), small)
    assert alive_ids(index)[-1] == "d0"


def test_a_passage_deleted_between_search_and_reading_is_told_apart_from_damage(index, small):
    put(index, documents(3), small)
    old = index.snapshot()
    Index(index.path).delete(["d1"])
    with pytest.raises(StaleSnapshot, match="search again"):
        old.fetch([0, 1])


def test_filters_see_metadata_and_what_is_deleted(index, small):
    put(index, documents(5), small)
    index.delete(["d3"])
    assert index.snapshot().allowed({"n": [2, 3]}).tolist() == [False, False, True, False, False]
    assert index.snapshot().allowed(lambda document: document.metadata["n"] > 2).tolist() == [False, False, False, False, True]
    wanted = {"n": [0]}
    assert index.snapshot().allowed(wanted).sum() == 1
    wanted["n"].append(1)
    assert index.snapshot().allowed(wanted).sum() == 2
    put(index, documents(1, start=7), small)
    assert index.snapshot().allowed({"n": 7}).tolist() == [False] * 5 + [True]
    assert not index.snapshot().allowed({"n": "nothing"}).any()


def test_a_filter_is_applied_once_a_search_and_a_mapping_reads_no_text(tmp_path, small):
    filed = [Document(f"Text {n}.", id=f"d{n}", metadata={"n": n, "title": f"Subject{n}"}) for n in range(5)]
    retriever = HopfieldRetriever.from_documents(filed, encoder=small, path=tmp_path / "filed")
    tried = []
    retriever.invoke("text", filter=lambda document: tried.append(document.id) or True)
    assert sorted(tried) == [f"d{n}" for n in range(5)]
    with sqlite3.connect(tmp_path / "filed" / DATABASE) as connection:
        connection.execute("UPDATE passages SET text = 'changed' WHERE id = 'd0'")
    assert Index(tmp_path / "filed").snapshot().allowed({"n": [0, 1]}).tolist() == [True, True, False, False, False]


def test_small_additions_share_a_block(index, small):
    for i in range(30):
        put(index, documents(1, start=i), small)
    assert len(index.snapshot().blocks) == 1
    index.verify()
    put(index, documents(2000, start=100), small)
    blocks = index.snapshot().blocks
    assert len(blocks) > 1
    assert max(block.sizes.sum() for block in blocks) <= BLOCK_ROWS
    index.verify()
    assert len(Index(index.path)) == 2030


def test_a_set_larger_than_a_block_is_one_block(index, small, monkeypatch):
    monkeypatch.setattr("langgraph_convcoa.retrieval.index.writer.BLOCK_ROWS", 2)
    put(index, documents(3), small)
    assert [block.sizes.tolist() for block in index.snapshot().blocks] == [[3], [3], [3]]
    index.verify()


def test_one_writer_at_a_time(index, small):
    other = Index(index.path)
    committed = index.ingest(documents(300), small)
    next(committed)
    with pytest.raises(RetrievalError, match="is being written to by another process, or through another object"):
        put(other, documents(1, start=900), small)
    assert len(other) == 256
    list(committed)
    put(other, documents(1, start=900), small)
    assert len(index) == 301


def test_threads_of_one_object_take_turns(index, small):
    errors = []

    def work(start):
        try:
            for i in range(5):
                put(index, documents(1, start=start + i), small)
        except RetrievalError as error:
            errors.append(error)

    run_in_threads(lambda n=n: work(100 * n) for n in range(4))
    assert errors == []
    assert len(index) == 20
    index.verify()


def test_building_reads_documents_as_it_needs_them_and_reports(index, small):
    taken = []

    def stream():
        for document in documents(600):
            taken.append(len(index))
            yield document

    seen = []
    put(index, stream(), small, progress=lambda done, total: seen.append((done, total)))
    assert taken[0] == 0
    assert taken[-1] == 512
    assert seen[-1] == (600, 600)


def test_a_run_that_failed_goes_on_where_it_was(index, small):
    def broken():
        yield from documents(400)
        raise OSError("the disk with the documents is gone")

    with pytest.raises(OSError, match="is gone"):
        put(index, broken(), small)
    assert len(index) == 256
    small.passages.clear()
    put(index, documents(400), small)
    assert not any("number 255" in text for text in small.passages)
    assert len(index) == 400


def test_open_or_create(tmp_path, small):
    first = open_or_create(tmp_path / "i", small, "int8", {"k": 3})
    put(first, documents(1), small)
    again = open_or_create(tmp_path / "i", small, None, {})
    assert (len(again), again.head.dtype, again.head.settings) == (1, "int8", {"k": 3})
    with pytest.raises(RetrievalError, match="as int8, not float32"):
        open_or_create(tmp_path / "i", small, "float32", {})
    with pytest.raises(RetrievalError, match="built with the encoder 'bag', not 'other'"):
        open_or_create(tmp_path / "i", BagOfWords("other", dimension=32), None, {})


def test_the_setting_of_the_removed_approximate_search_is_ignored(index, small):
    put(index, documents(3), small)
    index.put_settings({**index.head.settings, "approximate": {"candidates": 200}})
    assert len(HopfieldRetriever.from_pretrained(index.path, encoder=small).invoke("number 2", k=3)) == 3


TEXTS = ["The Hopfield network was described in 1982.", "Sparsemax was introduced in 2016."]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
def test_an_index_of_an_earlier_release_opens_and_takes_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Earlier releases stored what the processor computed in."""
    documents = [Document(text, id=str(n)) for n, text in enumerate(TEXTS)]
    with monkeypatch.context() as earlier:
        earlier.setattr(SentenceTransformerEncoder, "name", f"{DEFAULT_ENCODER}|{dtype}|256")
        earlier.setattr(
            "langgraph_convcoa.retrieval.index.writer.encoder_settings", lambda _: {"name": DEFAULT_ENCODER, "dtype": "auto"}
        )
        HopfieldRetriever.from_documents(documents, path=tmp_path / "index")
    reopened = HopfieldRetriever.from_pretrained(tmp_path / "index")
    assert reopened.invoke("When was sparsemax introduced?", k=1)[0].id == "1"
    reopened.add_documents([Document("Entmax came in 2019.", id="2")])
    assert reopened.invoke("When did entmax come?", k=1)[0].id == "2"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("m|float32|256", "m|bfloat16|256", True),
        ("m|float32|256", "m|int8|256", True),
        ("m|float32|256", "m|torchao-int8|256", False),
        ("m|float32|256", "m|float32|512", False),
        ("m|float32|256", "n|float32|256", False),
        ("float32", "bfloat16", False),
    ],
)
def test_only_the_arithmetic_may_differ(one: str, other: str, same: bool) -> None:
    assert (without_arithmetic(one) == without_arithmetic(other)) is same
