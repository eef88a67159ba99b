"""The graph follows its corpus: whatever was added, replaced and deleted, it is the one of the passages that are there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.graph.index import GraphFollower, GraphIndex
from langgraph_convcoa.retrieval.graph.settings import GraphSettings
from langgraph_convcoa.retrieval.index.index import GRAPH_FILE, Index, open_or_create, put_graph
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fakes import WORDS, ScriptedModel, direct
from tests.retrieval.conftest import BagOfWords, as_anew, put, same_links

NAMES = ["Ada Lovelace", "Charles Babbage", "London", "Engine (machine)", "Ada"]


def document(number, title, named, parts=1):
    text = " ".join(f"Here {NAMES[n]} met {NAMES[n - 1]} at the Royal Society." for n in named) or "Nothing."
    body = "\n\n".join([text] + [f"Part {part} about {NAMES[part % 5]} and {'words ' * 50}" for part in range(1, parts)])
    return Document(body, id=f"d{number}", metadata={"title": NAMES[title]} if title < len(NAMES) else {})


def links_of(links):
    return np.diff(links.shares.indptr).tolist()


documents = st.builds(
    document, st.integers(0, 5), st.integers(0, 5), st.lists(st.integers(0, 4), max_size=3), st.sampled_from([1, 1, 3])
)
changes = st.lists(st.one_of(documents, st.integers(0, 5).map("d{}".format)), min_size=1, max_size=8)


def change(corpus, changed, encoder):
    if isinstance(changed, str):
        corpus.delete([changed])
    else:
        put(corpus, [changed], encoder, replace=True)


@settings(max_examples=25, deadline=None)
@given(changes)
def test_additions_and_deletions_leave_the_graph_of_what_is_there(steps):
    encoder, corpus, follower = BagOfWords(), MemoryCorpus(), GraphFollower()
    for step in steps:
        change(corpus, step, encoder)
        as_anew(follower, corpus)


def test_an_index_on_disk_keeps_its_graph(tmp_path):
    encoder = BagOfWords()
    made = [document(n, n % 6, [n % 5, (n + 2) % 5], 1 + 2 * (n % 2)) for n in range(8)]
    retriever = HopfieldRetriever.from_documents(made, encoder=encoder, path=tmp_path / "index", graph=True)
    assert (tmp_path / "index" / GRAPH_FILE).is_file()
    for step in ("d3", document(1, 0, [2]), document(9, 3, [1]), "d9"):
        change(retriever.corpus, step, encoder)
        opened = Index(tmp_path / "index")
        as_anew(opened.graph, opened)
    opened.compact()
    as_anew(opened.graph, opened)
    assert HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder).graph


def test_what_was_deleted_is_not_in_the_file(tmp_path):
    encoder = BagOfWords()
    made = [document(n, n, [n]) for n in range(4)]
    HopfieldRetriever.from_documents(made, encoder=encoder, path=tmp_path / "index", graph=True)
    Index(tmp_path / "index").delete(["d2"])
    kept, expected = GraphIndex.load(tmp_path / "index" / GRAPH_FILE), GraphIndex([made[0], made[1], made[3]])
    assert len(kept) == 3
    same_links(kept.links, expected.links)


def test_a_graph_that_is_switched_off_is_not_kept(tmp_path):
    encoder, file = BagOfWords(), tmp_path / "index" / GRAPH_FILE
    made = [document(n, n, [n]) for n in range(4)]
    retriever = HopfieldRetriever.from_documents(made, encoder=encoder, path=tmp_path / "index", graph=True)
    index = Index(tmp_path / "index")
    put_graph(index, GraphSettings(steps=3))
    assert file.is_file()
    put_graph(index, None)
    assert not file.exists()
    index.delete(["d2"])
    put(index, [document(5, 3, [1])], encoder, replace=True)
    # Whoever asks for it all the same has it in memory.
    assert len(retriever.invoke("Ada Lovelace", k=9)) == 4
    assert not file.exists()
    # One that an earlier version left goes when the index is compacted.
    index.save_graph()
    index.compact()
    assert not file.exists()


def test_an_index_that_is_saved_over_has_the_graph_of_what_is_saved(tmp_path):
    encoder, file = BagOfWords(), tmp_path / "index" / GRAPH_FILE
    HopfieldRetriever.from_documents([document(n, n, [n]) for n in range(4)], encoder=encoder, path=file.parent)
    other = [document(7, 2, [1]), document(8, 4, [3])]
    HopfieldRetriever.from_documents(other, encoder=encoder).save_pretrained(file.parent)
    same_links(GraphIndex.load(file).links, GraphIndex(other).links)
    HopfieldRetriever.from_documents(other, encoder=encoder, graph=False).save_pretrained(file.parent)
    assert not file.exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:-9] + b"damaged!!", lambda data: b""])
def test_a_graph_that_is_missing_or_damaged_is_rebuilt(tmp_path, damage, caplog):
    encoder = BagOfWords()
    HopfieldRetriever.from_documents([document(n, n, [n]) for n in range(4)], encoder=encoder, path=tmp_path / "i", graph=True)
    file = tmp_path / "i" / GRAPH_FILE
    file.write_bytes(damage(file.read_bytes()))
    opened = Index(tmp_path / "i")
    as_anew(opened.graph, opened)
    assert "evidence graph is rebuilt" in caplog.text
    with pytest.raises(RetrievalError):
        GraphIndex.load(file)


def test_the_rare_names_that_articles_share_link_them():
    texts = ["Here Ada Lovelace wrote.", "Then Ada Lovelace died.", "Ada Lovelace is here.", *["It was London."] * 12]
    titles = ["Notes", "Obituary", "", *[f"Page {n}" for n in range(11)], "Page 0"]
    made = [Document(text, metadata={"title": title}) for text, title in zip(texts, titles, strict=True)]
    # A passage without a title, and parts that share one, are about many things.
    assert links_of(GraphIndex(made).links) == [2, 2, 0] + [1] * 12
    shared = [Document(text, metadata={"title": "Notes"}) for text in texts[:3]]
    assert links_of(GraphIndex(shared).links) == [1, 1, 1]


def test_where_nothing_has_a_title_or_given_names_nothing_is_linked():
    assert GraphIndex([Document("Here Ada Lovelace wrote."), Document("Then Ada Lovelace died.")]).empty
    assert not GraphIndex([Document("x", metadata={"entities": ["Ada Lovelace"]})]).empty


def test_a_title_that_every_passage_names_links_nothing():
    texts = [Document("Here is London.", metadata={"title": "London" if n == 0 else f"Town{n}"}) for n in range(40)]
    links = GraphIndex(texts).links
    assert links_of(links) == [1] * 40
    few = GraphIndex(texts[:5]).links
    assert links_of(few) == [1, 2, 2, 2, 2]


def test_given_names_link_however_many_passages_have_them():
    rows = [Document("x", metadata={"entities": ["row of cells"]}) for _ in range(30)]
    others = [Document("y") for _ in range(600)]
    assert GraphIndex([*rows, *others]).links.shares.nnz == 30


def test_a_million_rows_of_one_name_have_as_many_links_as_rows():
    counts = []
    for n in (500, 1000):
        rows = [Document(f"Row {k} of London, Ada.", metadata={"title": "Table", "entities": ["sales"]}) for k in range(n)]
        counts.append(GraphIndex(rows).links.shares.nnz)
    # The title alone is an entity; the names that all rows have link nothing.
    assert counts == [500, 1000]


def test_a_new_index_has_a_graph_and_one_that_was_made_without_keeps_none(tmp_path):
    encoder = BagOfWords()
    made = [document(n, n, [n]) for n in range(4)]
    HopfieldRetriever.from_documents(made, encoder=encoder, path=tmp_path / "new")
    assert (tmp_path / "new" / GRAPH_FILE).is_file()
    assert HopfieldRetriever.from_pretrained(tmp_path / "new", encoder=encoder).graph is True
    # As those that versions without graphs made: nothing is said of one.
    old = open_or_create(tmp_path / "old", encoder, settings={"k": 3})
    put(old, made, encoder)
    opened = HopfieldRetriever.from_pretrained(tmp_path / "old", encoder=encoder)
    assert opened.graph is None
    assert all(found.metadata["certified"] for found in opened.invoke("Ada Lovelace"))
    assert not (tmp_path / "old" / GRAPH_FILE).exists()
    walked = HopfieldRetriever.from_pretrained(tmp_path / "old", encoder=encoder, graph=True)
    as_anew(walked.corpus.graph, walked.corpus)
    assert walked.graph is True


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
