"""The action in a turn: what the planner gets, what is answered without a model, and that other questions stay ordinary."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import build_graph
from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.overview import Collection, Overview, Wanted, read_question
from langgraph_convcoa.datasets.demo import demo_folder
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.corpus import Passage
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.index.index import Snapshot
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests import SHARED
from tests.fake_encoder import WordEncoder
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, direct, node, plan


@cache
def demo() -> HopfieldRetriever:
    return HopfieldRetriever.from_documents(load_documents(demo_folder()), encoder=WordEncoder())


def many(count: int) -> HopfieldRetriever:
    documents = [
        Document(f"Text {n} about rivers.", id=f"d{n}", metadata={"title": f"Title {n}"}) for n in range(1, count + 1)
    ]
    return HopfieldRetriever.from_documents(documents, encoder=WordEncoder())


def found(overview: Overview, question: str, k: int = 5, **more: Any) -> list[Document]:
    return asyncio.run(overview.retrieve(ActionRequest(question, question, k=k, **more)))


def graph_of(*replies: str, overview: bool = True) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(replies=list(replies))
    return build_graph(model=model, retriever=demo(), actions=[Overview(demo())] if overview else []).compile(), model


def test_the_description_tells_what_is_there_in_few_words() -> None:
    told = Overview(demo()).description()
    assert "12 documents in" in told
    assert "(12 md)" in told
    assert "BM25" in told
    assert len(told.split()) <= 50
    assert len(Overview(many(2_000)).description().split()) <= 50


def test_a_list_is_bounded_and_goes_on() -> None:
    overview = Overview(many(45))
    pieces = found(overview, "List the documents")
    assert [piece.id for piece in pieces] == ["overview:documents-1", "overview:documents-11", "overview:left-out"]
    assert "“Title 10”" in pieces[0].page_content
    assert "“Title 20”" in pieces[1].page_content
    assert pieces[2].page_content == "25 more documents are not named here."
    last = found(overview, "And the rest?", action_input="list 41")
    assert [piece.metadata["extract"].split("\n")[-1] for piece in last] == ["45. Title 45"]


def test_a_summary_covers_a_long_document_within_k_passages() -> None:
    parts = [f"Part {n} tells of rivers and bridges." for n in range(40)]
    documents = [
        Document(text, id=f"p{n}", metadata={"title": "Rivers", "source": "r.pdf", "page": n}) for n, text in enumerate(parts)
    ]
    other = Document("It rained.", id="other", metadata={"title": "Weather"})
    overview = Overview(HopfieldRetriever.from_documents([*documents, other], encoder=WordEncoder()))
    pages = [piece.metadata["page"] for piece in found(overview, "Sum it up", k=5, action_input="Rivers")]
    assert len(pages) == 5
    assert pages[0] == 0
    # One of each further quarter.
    assert [(page - 1) * 4 // 39 for page in pages[1:]] == [0, 1, 2, 3]
    both = found(overview, "Compare Rivers and Weather", k=4)
    assert [piece.metadata["title"] for piece in both] == ["Rivers", "Weather", "Rivers"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("count", "The collection has 12 documents in"),
        ("count hopfield", "Of the 12 documents of the collection 3 have “hopfield” in title, heading or metadata."),
        ("list hopfield", "“Hopfield networks”"),
        ("topics", "Its main topics, by typical words and titles, are"),
    ],
)
def test_what_the_planner_asks_for(asked: str, told: str) -> None:
    assert told in found(Overview(demo()), "Anything", action_input=asked)[0].page_content


def test_a_model_answers_from_the_list_in_one_call() -> None:
    compiled, model = graph_of(direct("There are 12 documents [1]. They include BM25, LangGraph and Sparsemax [1][2]."))
    out = compiled.invoke({"question": "What is in here?"})
    assert out["answer"].startswith("There are 12 documents [1].")
    [item] = out["chain"]
    assert (item["action"], item["status"]) == ("overview", "kept")
    assert {citation["id"] for citation in out["citations"]} <= {"overview:documents-1", "overview:documents-11"}
    assert out["usage"]["llm_calls"] == 1
    [prompt] = model.prompts
    assert "[1] The collection\n" in prompt
    assert "“Sparsemax” (sparsemax.md)" in prompt
    assert "[3]" not in prompt


def test_a_planner_may_choose_it_in_words_of_its_own() -> None:
    asked = node("What do we own on BM25?", action="overview", action_input="BM25")
    compiled, _ = graph_of(plan(asked), corrections("BM25 is a ranking function.", final="BM25 is a ranking function [1]."))
    out = compiled.invoke({"question": "So, any good stuff?"})
    assert out["chain"][0]["action"] == "overview"
    assert "bm25.md" in out["chain"][0]["evidence"]


def test_an_ordinary_turn_differs_by_the_description_of_the_actions_alone() -> None:
    prompts = []
    for overview in (False, True):
        compiled, model = graph_of(direct("In 2016 [1]."), overview=overview)
        out = compiled.invoke({"question": "When was sparsemax introduced?"})
        prompts.append(model.prompts[0].splitlines())
        assert out["usage"]["retrievals"] == 1
        assert out["chain"][0]["action"] == "knowledge_retrieval"
    more = [line for line in prompts[1] if line not in prompts[0]]
    # The only action needs no description. Of several, each has a line, and the sentence about the steps names none.
    assert [line[:12] for line in more[1:]] == ["Actions:", "- knowledge_", "- overview: "]
    fewer = [line for line in prompts[0] if line not in prompts[1]]
    assert [line[:20] for line in (*more[:1], *fewer)] == ["Only where the passa"] * 2


def test_without_a_model_other_questions_never_reach_it() -> None:
    compiled = build_graph(retriever=demo(), actions=[Overview(demo())]).compile()
    plain = build_graph(retriever=demo()).compile()
    for question in (
        "Who introduced sparsemax?",
        "Which document describes the moon landing?",
        "What is the capital of Peru?",
    ):
        assert compiled.invoke({"question": question})["answer"] == plain.invoke({"question": question})["answer"]


def answer(question: str, *documents: Document) -> str:
    own = HopfieldRetriever.from_documents(documents, encoder=WordEncoder()) if documents else demo()
    told: str = build_graph(retriever=own, actions=[Overview(own)]).compile().invoke({"question": question})["answer"]
    return told


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What is in here?", "12 documents"), ("What is this collection about?", "12 documents"),
        ("Which documents do you have?", "1. BM25"), ("Please list all documents.", "12. "),
        ("How many files do I have?", "12 documents"), ("Which documents are from 2024?", "Nobel Prize"),
        ("Is there a document about LangGraph?", "1. LangGraph"), ("What are the main topics?", "main topics"),
        ("Which PDFs are there?", "none have “pdf”"), ("Which file types do you have?", "(12 md)"),
    ],
)  # fmt: skip
def test_questions_that_name_the_collection_are_answered_without_a_model(question: str, told: str) -> None:
    assert told in answer(question)


def test_documents_about_something_are_found_by_their_headings() -> None:
    manual = Document(
        "The Lark-2 robot\n\nIt weighs 9 kg.", id="m", metadata={"source": "m.pdf", "title": "untitled", "page": 1}
    )
    other = Document("It rained. " * 30 + "A Lark-2 stood in the rain.", id="w", metadata={"title": "Weather"})
    told = answer("Which documents are about the Lark-2?", manual, other)
    assert "1. untitled (m.pdf)" in told
    assert "Weather" not in told


@pytest.mark.parametrize(
    "question",
    [
        "Who introduced sparsemax?", "How many articles does the constitution have?", "How many articles are there?",
        "How many reports did she write?", "How many pages does the report have?", "What is the topic?",
        "What is in the library?", "What does Article 370 say?", "Which article protects free speech?",
        "Which documents are needed for a passport?", "What documents do I need?", "Who wrote the oldest document?",
        "List the files that the tenant must sign", "Are there any other interesting aspects about this article?",
        "Please open the valve", "and the second one?", "more", "What was it about?",
        "List " + "very " * 100 + "many documents",
    ],
)  # fmt: skip
def test_other_questions_are_left_alone(question: str) -> None:
    assert read_question(question) is None
    assert not Overview(demo()).recognises(question)


def test_a_question_about_documents_that_are_not_there_is_an_ordinary_one() -> None:
    assert read_question("Which documents are about the moon landing?") == Wanted("list", "the moon landing")
    assert not Overview(demo()).recognises("Which documents are about the moon landing?")


def test_a_list_is_made_again_and_is_no_evidence_later() -> None:
    compiled = build_graph(retriever=demo(), actions=[Overview(demo())]).compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "a"}}
    after_a_question = {"messages": [("user", "Hi"), ("assistant", "Which topic?"), ("user", "List the documents")]}
    for given in (after_a_question, {"question": "List the documents"}):
        out = compiled.invoke(given, thread)
        assert out["chain"][0]["status"] == "filled"
    out = compiled.invoke({"question": "Who introduced sparsemax?"}, thread)
    assert not any(citation["id"].startswith("overview:") for citation in out["citations"])
    assert not compiled.get_state(thread).values["evidence_memory"] or all(
        not piece["id"].startswith("overview:") for piece in compiled.get_state(thread).values["evidence_memory"]
    )


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data" / "squad2").exists(), reason="needs the evaluation data")
@pytest.mark.parametrize("name", ["squad2", "mtrag", "quac_dev", "abg_coqa"])
def test_no_question_of_the_data_sets_is_taken_for_one_about_the_collection(name: str) -> None:
    with gzip.open(SHARED / "data" / name / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        asked = [json.loads(line)["question"] for line in lines]
    assert asked
    taken = [question for question in asked if (wanted := read_question(question)) is not None and not wanted.words]
    assert taken == []


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
