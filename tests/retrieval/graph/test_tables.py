"""Rows of tables and infoboxes in one graph with text: a question that needs a passage and a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fakes import WORDS, ScriptedModel, direct
from tests.retrieval.conftest import BagOfWords

PEOPLE = [f"{first} {last}" for last in ("Holm", "Lund", "Strand", "Berg", "Vik") for first in ("Ida", "Per", "Eva", "Ole")]
PLACES = ["Halvorsen", "Tarnby", "Ravn", "Falk", "Osp", "Selje", "Rogn", "Lind"]
THINGS = [f"{place} {kind}" for kind in ("Bridge", "Mill") for place in PLACES]
QUESTION = "In what year was the designer of the Halvorsen Bridge born?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pages about things, and what their designers did in rows that share no word with a question about the things."""
    for number, thing in enumerate(THINGS):
        text = f"# {thing}\n\nThe {thing} was drawn by {PEOPLE[number + 3]}. A designer of the guild paid for it in that year."
        (tmp_path / f"{thing}.md").write_text(text)
    rows = "\n".join(
        f'{person},{1800 + n},"kept a long diary, of which the archive of the town holds the greater part"'
        for n, person in enumerate(PEOPLE)
    )
    (tmp_path / "people.csv").write_text(f"person,birth,remark\n{rows}\n")
    return tmp_path


def retriever(documents: list[Document], graph: bool) -> HopfieldRetriever:
    return HopfieldRetriever.from_documents(documents, encoder=BagOfWords(), k=4, graph=graph)


def answer_from(prompt: str) -> str:
    """A model that knows nothing but what its prompt says: who drew the bridge, and the row of that person."""
    drawn = re.search(r"The Halvorsen Bridge was drawn by (\w+ \w+)", prompt)
    row = re.search(rf"person: {drawn[1]}\s+birth: (\d+)", prompt) if drawn else None
    if not drawn or not row:
        return direct("It is not known.")
    marks = "".join(f"[{number}]" for number in range(1, 5))
    return direct(f"The Halvorsen Bridge was drawn by {drawn[1]} {marks}. {drawn[1]}: birth {row[1]} {marks}.")


def test_a_question_is_answered_only_by_a_passage_and_a_row(folder: Path) -> None:
    documents = load_documents(folder)
    answers = {}
    for graph in (False, True):
        model = ScriptedModel(by_prompt=answer_from)
        compiled = build_graph(model=model, retriever=retriever(documents, graph), verifier=WORDS).compile()
        answers[graph] = compiled.invoke({"question": QUESTION})
    assert "1803" not in answers[False]["answer"]
    assert "Ole Holm: birth 1803" in answers[True]["answer"]
    sources = {citation["source"] for citation in answers[True]["citations"]}
    assert sources == {"Halvorsen Bridge.md", "people.csv"}


def test_the_row_says_how_it_was_reached_through_a_cell(folder: Path) -> None:
    found = retriever(load_documents(folder), graph=True).invoke(QUESTION)
    row = next(one for one in found if one.metadata["source"] == "people.csv")
    assert "Ole Holm" in row.metadata["entities"]
    assert row.metadata["graph_path"] == ["question", "Halvorsen Bridge", '"Ole Holm"', "people"]


def test_an_infobox_is_a_passage_of_its_own_that_its_values_link(tmp_path: Path) -> None:
    (tmp_path / "lund.html").write_text(
        "<title>Ida Lund</title><h1>Ida Lund</h1><p>She was an engineer of the north.</p><table class='infobox'>"
        "<tr><th colspan=2>Portrait</th></tr><tr><th>Born:</th><td>3 March 1871</td></tr>"
        "<tr><th>Works</th><td><a href='b'>Halvorsen Bridge</a>, <a href='t'>Water Tower</a></td></tr>"
        "<tr><th>Trade</th><td>Engineer, with <a href='g'>a</a> guild</td></tr></table>"
    )
    (tmp_path / "table.html").write_text(
        "<title>T</title><table><tr><th>a</th><td>b</td></tr><tr><td>1</td><td>2</td></tr></table>"
    )
    page, infobox, table = load_documents(tmp_path)
    assert page.page_content == "She was an engineer of the north.\n\nPortrait"  # Its heading is its title.
    assert (infobox.id, infobox.metadata["title"]) == ("lund.html:infobox", "Ida Lund")
    assert infobox.page_content == "Born: 3 March 1871\nWorks: Halvorsen Bridge, Water Tower\nTrade: Engineer, with a guild"
    assert infobox.metadata["triples"] == [
        ["Ida Lund", "Born", "3 March 1871"],
        ["Ida Lund", "Works", "Halvorsen Bridge"],
        ["Ida Lund", "Works", "Water Tower"],
        ["Ida Lund", "Trade", "Engineer, with a guild"],
    ]
    # A table of a few rows is none.
    assert "triples" not in table.metadata
    bridge = Document("Its span is 214 metres.", id="bridge", metadata={"title": "Halvorsen Bridge"})
    others = [Document(f"The engineer number {n} of the north.", id=f"o{n}") for n in range(9)]
    found = retriever([page, infobox, bridge, *others], graph=True).invoke("What span has the work of the engineer Ida Lund?")
    assert "bridge" in [one.id for one in found]


def test_cells_that_are_numbers_or_sentences_name_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,n,note\nAX-200,1931,It is kept in the archive of the town.\nyes,2,no\n")
    (document,) = load_documents(tmp_path)
    assert document.metadata["entities"] == ["AX-200"]
