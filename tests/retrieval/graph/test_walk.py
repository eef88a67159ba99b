"""Retrieval along the graph: what the question needs beyond the passages that are like it."""

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.graph.settings import GraphSettings
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.search import FoundMetadata
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.test_retriever import ids

FILM = Document("Ed Wood is a film directed by Tim Burton about a director.", id="film", metadata={"title": "Ed Wood (film)"})
MAN = Document("He came from Burbank, in 1958.", id="man", metadata={"title": "Tim Burton"})
SCHOOLS = [f"School {n}" for n in range(8)]
OTHERS = [Document(f"The director of {name} was born.", id=f"o{name[-1]}", metadata={"title": name}) for name in SCHOOLS]
QUESTION = "When was the director of Ed Wood born?"


def retriever(documents=(FILM, MAN, *OTHERS), **options):
    return HopfieldRetriever.from_documents(documents, encoder=BagOfWords(), **({"k": 3, "graph": True} | options))


def test_the_second_passage_is_found_by_its_name_in_the_first_and_says_so():
    plain = retriever(graph=None).invoke(QUESTION)
    assert "man" not in ids(plain)
    assert all(document.metadata["certified"] and "graph_path" not in document.metadata for document in plain)
    found = retriever().invoke(QUESTION)
    assert ids(found)[:2] == ["film", "man"]
    assert found[1].metadata["graph_path"] == ["question", "Ed Wood (film)", '"Tim Burton"', "Tim Burton"]
    # The question itself found the first.
    assert "graph_path" not in found[0].metadata
    # The walk changed the ranking; the scores are those of the passages for the question.
    assert not any(document.metadata["certified"] for document in found)
    scores = dict(retriever(graph=None).search_batch([QUESTION], k=10)[0])
    assert [document.metadata["score"] for document in found] == pytest.approx([scores[name] for name in ids(found)])


def test_a_walk_that_changes_nothing_leaves_the_ranking_certified():
    plain = [Document(f"Only word{n} in it.", id=f"p{n}") for n in range(5)]
    question = "word3 word3 word1"
    for options in ({}, {"path": None}):
        found = retriever(plain, k=2, **options).invoke(question)
        assert ids(found) == ids(retriever(plain, k=2, graph=None).invoke(question))
        assert all(document.metadata["certified"] for document in found)
        # Without titles nothing is linked, and there is no walk.
        assert not any("graph_path" in document.metadata for document in found)
    titled = [one.model_copy(update={"metadata": {"title": f"Title {one.id}"}}) for one in plain]
    found = retriever(titled, k=2).invoke(question)
    assert ids(found) == ids(retriever(titled, k=2, graph=None).invoke(question))
    assert all(document.metadata["certified"] for document in found)
    assert not any("graph_path" in document.metadata for document in found)


@pytest.mark.parametrize("question", ["?!", "why", "ed wood", "Ed Wood Tim Burton School 1", "東京", "x" * 5000])
def test_any_question_is_answered_with_as_many_passages(question):
    assert len(set(ids(retriever(k=4).invoke(question)))) == 4


def test_filters_thresholds_and_k():
    searched = retriever()
    others = ids(searched.invoke(QUESTION, k=20, filter={"title": {"$ne": "Ed Wood (film)"}}))
    assert sorted(others) == sorted(ids([MAN, *OTHERS]))
    assert "man" not in ids(searched.invoke(QUESTION, score_threshold=0.5))
    assert sorted(ids(searched.invoke(QUESTION, k=50))) == sorted(ids([FILM, MAN, *OTHERS]))
    [batch] = searched.search_batch([QUESTION])
    assert [name for name, _ in batch] == ids(searched.invoke(QUESTION))


def test_a_passage_that_was_deleted_is_in_no_path(tmp_path):
    searched = retriever(path=tmp_path / "index")
    assert ids(searched.invoke(QUESTION))[1] == "man"
    searched.delete(["film"])
    found = searched.invoke(QUESTION)
    assert "film" not in ids(found)
    assert all("Ed Wood (film)" not in document.metadata.get("graph_path", ()) for document in found)


def test_the_steps_and_weights_are_settings(tmp_path):
    assert "man" not in ids(retriever(graph=GraphSettings(steps=0)).invoke(QUESTION))
    kept = retriever(graph={"damping": 0.6}, path=tmp_path / "index")
    assert HopfieldRetriever.from_pretrained(kept.corpus.path, encoder=BagOfWords()).graph == GraphSettings(damping=0.6)
    with pytest.raises(InputError, match="graph"):
        retriever(graph={"damping": 2})
    with pytest.raises(InputError, match="graph"):
        retriever(graph="yes please")


def test_a_saved_copy_has_the_graph(tmp_path):
    retriever().save_pretrained(tmp_path / "saved")
    opened = HopfieldRetriever.from_pretrained(tmp_path / "saved", encoder=BagOfWords())
    assert ids(opened.invoke(QUESTION, k=2)) == ["film", "man"]


async def test_a_run_may_switch_the_graph_of_the_document_action() -> None:
    action = KnowledgeRetrieval(retriever(graph=None))
    for graph, expected in ((True, True), (None, False), (False, False)):
        settings = {} if graph is None else {"graph": graph}
        found = await action.retrieve(ActionRequest(QUESTION, QUESTION, k=3, settings=settings))
        assert ("man" in ids(found)) is expected


def test_a_path_of_the_users_own_is_left_alone():
    mine = [document.model_copy(update={"metadata": {**document.metadata, "path": "docs/a.txt"}}) for document in (FILM, MAN)]
    for graph in (None, True):
        found = retriever([*mine, *OTHERS], graph=graph).invoke(QUESTION, k=10)
        assert {document.id: document.metadata.get("path") for document in found} == {
            "film": "docs/a.txt",
            "man": "docs/a.txt",
            **dict.fromkeys(ids(OTHERS)),
        }
    assert FoundMetadata(path="a.txt", graph_path=["question", "a"]) == FoundMetadata(path="a.txt", score=0.5)
    assert FoundMetadata(path="a.txt") != FoundMetadata(path="b.txt")
