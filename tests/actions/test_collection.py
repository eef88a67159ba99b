"""Documents of a corpus, and which of them a name means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.overview import Collection, Overview
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.corpus import Passage
from langgraph_convcoa.retrieval.index.index import Snapshot
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fake_encoder import WordEncoder
from tests.fakes import KeywordRetriever


def piece(text: str, id: str, source: str, title: str, **metadata: Any) -> Document:
    return Document(text, id=id, metadata={"title": title, "source": source, **metadata})


DOCUMENTS = [
    piece("One.", "bm25.md", "bm25.md", "BM25"),
    piece("Two.", "r22", "a/report-2022.pdf", "Annual report 2022", page=1, date="2023-02-01"),
    piece("Three.", "r22-2", "a/report-2022.pdf", "Annual report 2022", page=2),
    piece("Four.", "r23", "a/report-2023.pdf", "Annual report 2023", author="Ada Smith"),
    piece("Five.", "rag", "https://example.org/rag", "Retrieval-augmented generation"),
    Document("Six.", id="plain"),
]


def collection(path: Path | None = None) -> Collection:
    return Overview(HopfieldRetriever.from_documents(DOCUMENTS, encoder=WordEncoder(), path=path)).collection()


@pytest.mark.parametrize("on_disk", [False, True])
def test_pages_of_a_file_are_one_document(on_disk: bool, tmp_path: Path) -> None:
    found = collection(tmp_path / "index" if on_disk else None)
    assert [entry.title for entry in found.entries] == [
        "BM25", "Annual report 2022", "Annual report 2023", "Retrieval-augmented generation", "plain",
    ]  # fmt: skip
    assert [len(entry.numbers) for entry in found.entries] == [1, 2, 1, 1, 1]
    assert [entry.suffix for entry in found.entries] == ["md", "pdf", "pdf", "web", ""]
    assert [passage.document.id for passage in found.view.fetch(found.entries[1].numbers)] == ["r22", "r22-2"]


@pytest.mark.parametrize("what", ["the filter", "the text"])
def test_an_index_that_changes_while_it_is_read_is_read_again(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=WordEncoder(), path=tmp_path / "index")
    other = HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=WordEncoder())
    changes: list[Callable[[], object]] = []
    if what == "the filter":
        retriever.filter = lambda passage: passage.metadata["source"] != "bm25.md"  # a function may read the texts
        question, expected = "How many documents are there?", "3 documents"
        changes.append(lambda: other.delete(["plain"]))
    else:
        question, expected = "Annual report 2023", "Four again."
        changes.append(lambda: other.update([DOCUMENTS[3].model_copy(update={"page_content": "Four again."})]))
    fetch = Snapshot.fetch

    def changing(view: Snapshot, numbers: Sequence[int]) -> list[Passage]:
        if changes:
            changes.pop()()
        return fetch(view, numbers)

    monkeypatch.setattr(Snapshot, "fetch", changing)
    found = asyncio.run(Overview(retriever).retrieve(ActionRequest(question, question)))
    assert not changes
    assert expected in found[0].page_content


def test_slides_chapters_and_sheets_are_one_document_and_rows_with_titles_are_not() -> None:
    parts = [
        ("plan.pptx", "The harbour", {"page": 1}), ("plan.pptx", "Ships", {"page": 2}),
        ("sea.epub", "The Sea", {"chapter": 1}), ("sea.epub", "The Sea: The storm", {"chapter": 2}),
        ("crew.xlsx", "Crew", {"sheet": "Crew", "row": 1}), ("crew.xlsx", "Pay", {"sheet": "Pay", "row": 1}),
        ("rows.jsonl", "Ada", {}), ("rows.jsonl", "Bob", {}), ("https://example.org/a.pdf", "Old", {"page": 1}),
        ("https://example.org/a.pdf", "New", {"page": 1}),
    ]  # fmt: skip
    documents = [piece(f"Text {n}.", f"d{n}", source, title, **place) for n, (source, title, place) in enumerate(parts)]
    found = Overview(HopfieldRetriever.from_documents(documents, encoder=WordEncoder())).collection()
    titles = ["The harbour", "The Sea", "Crew", "Ada", "Bob", "Old", "New"]
    assert [entry.title for entry in found.entries] == titles
    assert [len(entry.numbers) for entry in found.entries] == [2, 2, 2, 1, 1, 1, 1]


def test_the_collection_follows_its_corpus_and_the_filter(tmp_path: Path) -> None:
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=WordEncoder(), path=tmp_path / "index")
    overview = Overview(retriever)
    before = overview.collection()
    assert overview.collection() is before
    retriever.add_documents([Document("Seven.", id="new", metadata={"title": "New"})])
    assert [entry.title for entry in overview.collection().entries][-1] == "New"
    retriever.delete(["plain", "bm25.md"])
    assert len(overview.collection().entries) == 4
    retriever.filter = {"author": "Ada Smith"}
    assert [entry.title for entry in overview.collection().entries] == ["Annual report 2023"]


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        ("2023", ["Annual report 2022", "Annual report 2023"]), ("smith", ["Annual report 2023"]),
        ("pdf", ["Annual report 2022", "Annual report 2023"]),
        ("the annual report", ["Annual report 2022", "Annual report 2023"]), ("nobody", []), ("BM25 nobody", []),
    ],
)  # fmt: skip
def test_documents_that_have_words_in_title_file_or_metadata(words: str, titles: list[str]) -> None:
    assert [entry.title for entry in collection().having(words)] == titles


def test_titles_that_stand_in_a_text() -> None:
    found = collection()
    assert [entry.title for entry in found.named("compare bm25.md; Annual report 2023")] == ["BM25", "Annual report 2023"]
    assert found.named("the history of ranking") == []


def test_only_a_corpus_that_can_be_listed() -> None:
    with pytest.raises(InputError, match="needs a HopfieldRetriever"):
        Overview(KeywordRetriever())  # type: ignore[arg-type]
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    with pytest.raises(InputError, match="vector store"):
        Overview(HopfieldRetriever.from_vectorstore(store))
