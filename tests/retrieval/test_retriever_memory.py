import math

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

DOCUMENTS = [
    Document(f"Subject{i} is round. It was found in 19{i:02}. Nothing more is known of it.", id=f"d{i}", metadata={"n": i})
    for i in range(40)
]
QUESTIONS = ["What is subject3?", "When was subject17 found?", "Of what is nothing known?"]


def results(retriever, **options):
    return [[(d.id, d.page_content, dict(d.metadata)) for d in retriever.invoke(q, **options)] for q in QUESTIONS]


def assert_same(found, expected):
    for hits, others in zip(found, expected, strict=True):
        assert [hit[:2] for hit in hits] == [other[:2] for other in others]
        for (*_, metadata), (*_, other) in zip(hits, others, strict=True):
            assert metadata.pop("score") == pytest.approx(other.pop("score"), abs=1e-6)
            assert metadata == other


@pytest.fixture
def on_disk(tmp_path, encoder):
    return HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index")


def test_an_index_finds_what_a_memory_finds(on_disk, encoder):
    in_memory = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder)
    assert isinstance(on_disk.corpus, Index)
    assert_same(results(on_disk), results(in_memory))
    assert_same(results(on_disk, history=[("What is subject5?", "")]), results(in_memory, history=[("What is subject5?", "")]))
    assert [[i for i, _ in hits] for hits in on_disk.search_batch(QUESTIONS, k=7)] == [
        [i for i, _ in hits] for hits in in_memory.search_batch(QUESTIONS, k=7)
    ]


@pytest.mark.parametrize("dtype", [None, "int8"])
def test_saved_and_opened_again(tmp_path, encoder, dtype):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, k=3, dtype=dtype)
    retriever.save_pretrained(tmp_path / "index")
    encoder.passages.clear()
    opened = HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder)
    assert_same(results(opened), results(retriever))
    assert encoder.passages == []
    assert opened.corpus.head.dtype == (dtype or "float32")


def test_settings_are_saved_and_can_be_set_again(tmp_path, encoder, caplog):
    settings = {"k": 2, "beta": math.inf, "filter": {"n": {3, 17}}, "return_association": True, "history_weight": 0.3}
    HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, **settings).save_pretrained(tmp_path / "index")
    opened = HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder, k=4)
    assert (opened.k, opened.beta, opened.return_association, opened.history_weight) == (4, math.inf, True, 0.3)
    assert {found.id for found in opened.invoke(QUESTIONS[0])} == {"d3", "d17"}
    opened.filter = None
    opened.save_pretrained(tmp_path / "index")
    assert HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder).k == 4
    opened.filter = lambda document: True
    opened.save_pretrained(tmp_path / "index")
    assert "The setting filter" in caplog.text
    assert HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder).filter is None
    with pytest.raises(InputError, match="betta"):
        HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder, betta=1)


def test_a_memory_in_memory_is_saved_with_its_changes_and_a_saved_one_in_place_of_another(tmp_path, encoder):
    path = tmp_path / "index"
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder)
    retriever.save_pretrained(path)
    reader = HopfieldRetriever.from_pretrained(path, encoder=encoder, k=1)
    retriever.delete(["d3"])
    retriever.add_documents([Document("word " * 200, id="book")])
    assert reader.invoke("subject3")[0].id == "d3"
    retriever.save_pretrained(path, dtype="int8")
    assert reader.invoke("subject3")[0].id != "d3"
    assert reader.corpus.head.dtype == "int8"
    assert reader.invoke("word")[0].metadata["document_id"] == "book"
    reader.corpus.verify()
    encoder.passages.clear()
    reader.add_documents([Document("word " * 200, id="book"), DOCUMENTS[0]])
    assert encoder.passages == []


def test_an_index_saved_to_another_folder_leaves_out_what_was_deleted(tmp_path, on_disk, encoder):
    on_disk.delete(["d3"])
    on_disk.save_pretrained(tmp_path / "copy", dtype="int8")
    copy = HopfieldRetriever.from_pretrained(tmp_path / "copy", encoder=encoder)
    assert copy.corpus.snapshot().allowed(None) is None
    assert [[hit[0] for hit in hits] for hits in results(copy)] == [[hit[0] for hit in hits] for hits in results(on_disk)]
    with pytest.raises(InputError, match="cannot become int8 in its place"):
        on_disk.save_pretrained(on_disk.corpus.path, dtype="int8")


def test_everything_deleted_and_added_again_in_memory(encoder):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, dtype="int8")
    retriever.delete([document.id for document in DOCUMENTS])
    assert retriever.invoke("subject3") == []
    assert retriever.add_documents([]) == []
    retriever.add_documents(DOCUMENTS[:5])
    assert retriever.invoke("subject3")[0].id == "d3"


def test_a_build_that_is_run_again_encodes_only_what_is_new(tmp_path, encoder):
    HopfieldRetriever.from_documents(DOCUMENTS[:30], encoder=encoder, path=tmp_path / "index", dtype="int8")
    encoder.passages.clear()
    retriever = HopfieldRetriever.from_documents(iter(DOCUMENTS), encoder=encoder, path=tmp_path / "index")
    assert not any("Subject3 " in text for text in encoder.passages)
    assert any("Subject31 " in text for text in encoder.passages)
    assert len(retriever.corpus) == 40


def test_a_search_that_loses_a_passage_to_a_deletion_begins_again(on_disk, monkeypatch):
    from langgraph_convcoa.retrieval import search as module

    ranked = module.top_k

    def slow(*arguments, **options):
        rankings = ranked(*arguments, **options)
        if len(on_disk.corpus.snapshot().listed()) == 40:
            Index(on_disk.corpus.path).delete(["d3"])
        return rankings

    monkeypatch.setattr(module, "top_k", slow)
    found = on_disk.invoke("What is subject3?")
    assert found
    assert "d3" not in [document.id for document in found]


def test_bad_settings_are_told_before_an_index_is_made(tmp_path, encoder):
    with pytest.raises(InputError, match="beta"):
        HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index", beta=-1)
    with pytest.raises(InputError, match="'int4'"):
        HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index", dtype="int4")
    assert not (tmp_path / "index").exists()


def test_unusable_vectors_leave_a_memory_as_it_was(encoder):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder)
    encoder.encode_passages = lambda texts, progress=False: np.full((len(texts), encoder.dimension), np.nan)
    with pytest.raises(RetrievalError, match="NaN"):
        retriever.add_documents([Document("New.", id="new")])
    assert len(retriever.corpus) == 40


def test_what_a_killed_writer_left_beside_an_index_goes(tmp_path, encoder):
    HopfieldRetriever.from_texts(["one apple", "two pears"], encoder=encoder, path=tmp_path / "index")
    left = tmp_path / "index" / ".lexical.safetensors.0123.partial"
    left.write_text("words of what is deleted")
    HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder).compact()
    assert not left.exists()
