import logging

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index
from langgraph_convcoa.retrieval.index.index import LEXICAL_FILE, open_or_create
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.conftest import put

DOCUMENTS = [
    Document("Apples grow on trees.", id="a"),
    Document("Pears grow on zygomorphic trees.", id="b"),
    Document("Networks store patterns.", id="c"),
]
QUESTION = "What is zygomorphic?"


def scores(retriever, question=QUESTION, **settings):
    return {document.id: document.metadata["score"] for document in retriever.invoke(question, **settings)}


@pytest.fixture(params=["memory", "index"])
def make(request, encoder, tmp_path):
    def made(documents=DOCUMENTS, **settings):
        path = tmp_path / "index" if request.param == "index" else None
        return HopfieldRetriever.from_documents(documents, encoder=encoder, path=path, **settings)

    return made


def test_words_add_their_weight_to_the_dense_score(make):
    plain = scores(make(lexical_weight=0.0))
    retriever = make(lexical_weight=0.25)
    found = scores(retriever)
    assert found["b"] == pytest.approx(plain["b"] + 0.25, abs=1e-5)
    assert found["a"] == pytest.approx(plain["a"], abs=1e-5)
    assert retriever.search_batch([QUESTION])[0][0] == ("b", pytest.approx(found["b"], abs=1e-6))


def test_a_filter_and_a_threshold_hold_for_words_too(make):
    assert "b" not in scores(make(lexical_weight=5.0, filter=lambda metadata: False))
    assert list(scores(make(lexical_weight=5.0, score_threshold=4.0))) == ["b"]


def test_the_words_of_the_turns_before_a_follow_up_add_theirs(make):
    turns = [("What is zygomorphic?", "A kind of tree.")]
    plain, found = (scores(make(lexical_history=weight), "And where?", history=turns) for weight in (0.0, 0.5))
    assert found["b"] == pytest.approx(plain["b"] + 0.5, abs=1e-5)
    assert found["c"] == pytest.approx(plain["c"], abs=1e-5)
    retriever = make()
    for settings in ({"history_weight": 0.0}, {"lexical_weight": 0.0}):
        off = retriever.model_copy(update=settings)
        bare = off.model_copy(update={"lexical_history": 0.0})
        assert scores(off, "And where?", history=turns) == scores(bare, "And where?", history=turns)
    # Each question of a batch has its own.
    batch = retriever.search_batch(["And where?", "And where?"], [turns, []])
    assert batch[0] == retriever.search_batch(["And where?"], [turns])[0]
    assert dict(batch[1]) == pytest.approx(scores(make(lexical_history=0.0), "And where?"), abs=1e-6)


@pytest.mark.parametrize("name", ["lexical_weight", "lexical_history"])
@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_told(make, weight, name):
    with pytest.raises(InputError, match=name):
        make(**{name: weight})


def test_deleted_and_updated_documents_are_found_by_their_words_no_more(make, encoder):
    retriever = make(lexical_weight=1.0)
    assert next(iter(scores(retriever))) == "b"
    retriever.update([Document("Pears are green.", id="b")])
    assert max(scores(retriever).values()) < 0.5
    retriever.add_documents([Document("A zygomorphic flower.", id="d")])
    assert next(iter(scores(retriever))) == "d"
    retriever.delete(["d"])
    assert "d" not in scores(retriever)
    assert max(scores(retriever).values()) < 0.5
    retriever.compact()
    assert max(scores(retriever).values()) < 0.5


def test_words_go_from_the_disk_with_their_document(encoder, tmp_path):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index")
    file = tmp_path / "index" / LEXICAL_FILE
    assert b"zygomorph" in file.read_bytes()
    retriever.delete(["b"])
    assert b"zygomorph" not in file.read_bytes()
    assert b"appl" in file.read_bytes()


def test_an_index_that_is_opened_again_reads_no_passage_for_its_words(encoder, tmp_path, added):
    made = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index")
    made.save_pretrained(tmp_path / "other")
    expected = scores(made)
    added.clear()
    for folder in ("index", "other"):
        found = scores(HopfieldRetriever.from_pretrained(tmp_path / folder, encoder=encoder))
        assert found == pytest.approx(expected, abs=1e-6)
    assert added == []


def test_without_the_file_or_with_an_old_one_scores_are_the_same(encoder, tmp_path):
    made = HopfieldRetriever.from_documents(DOCUMENTS[:2], encoder=encoder, path=tmp_path / "index")
    made.add_documents(DOCUMENTS[2:])
    expected = scores(made)
    assert scores(HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder)) == pytest.approx(expected, abs=1e-6)
    (tmp_path / "index" / LEXICAL_FILE).unlink()
    assert scores(HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder)) == pytest.approx(expected, abs=1e-6)


def test_a_lexical_file_that_cannot_be_written_costs_no_document(encoder, tmp_path, caplog):
    index = open_or_create(tmp_path / "index", encoder)
    put(index, DOCUMENTS, encoder)
    (tmp_path / "index" / LEXICAL_FILE).mkdir()
    with caplog.at_level(logging.WARNING):
        index.save_lexical()
    assert "The BM25 index is not kept" in caplog.text
    assert next(iter(scores(HopfieldRetriever(corpus=index, encoder=encoder, lexical_weight=1.0)))) == "b"


def test_words_go_even_where_no_new_file_can_be_written(encoder, tmp_path, monkeypatch):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index", lexical_weight=1.0)

    def full(*_arguments, **_settings):
        raise RetrievalError("No space left.")

    monkeypatch.setattr(BM25Index, "save", full)
    retriever.delete(["b"])
    assert not (tmp_path / "index" / LEXICAL_FILE).exists()
    assert max(scores(retriever).values()) < 0.5
