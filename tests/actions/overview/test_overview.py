"""The action in a turn: what a model is shown, what is answered without one, and that other turns are as they were."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import HopfieldRetriever, Overview, build_graph
from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.datasets.demo import demo_folder
from langgraph_convcoa.retrieval.documents.load import load_documents
from tests import SHARED
from tests.benchmarks import corpus_questions
from tests.fake_encoder import WordEncoder
from tests.fakes import ScriptedModel, corrections, direct, node, plan


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
    assert "12 Markdown files" in told
    assert "BM25" in told
    assert len(told.split()) <= 50
    assert len(Overview(many(2_000)).description().split()) <= 50


def test_a_list_is_bounded_and_goes_on() -> None:
    overview = Overview(many(45))
    pieces = found(overview, "List the documents")
    assert [piece.id for piece in pieces] == ["overview:documents-1", "overview:documents-11", "overview:left-out"]
    assert "“Title 10”" in pieces[0].page_content
    assert "“Title 20”" in pieces[1].page_content
    assert pieces[2].page_content.startswith("25 more documents are not named here")
    after = [("List the documents", "..."), ("more", "...")]
    last = found(overview, "the rest", history=tuple(after))
    assert [piece.metadata["extract"].split("\n")[-1] for piece in last] == ["45. Title 45"]
    assert "no more of them" in found(overview, "more", history=(*after, ("more", "")))[0].page_content


def test_a_summary_covers_a_long_document_within_k_passages() -> None:
    parts = [f"Part {n} tells of rivers and bridges." for n in range(40)]
    documents = [
        Document(text, id=f"p{n}", metadata={"title": "Rivers", "source": "r.pdf", "page": n}) for n, text in enumerate(parts)
    ]
    other = Document("It rained.", id="other", metadata={"title": "Weather"})
    overview = Overview(HopfieldRetriever.from_documents([*documents, other], encoder=WordEncoder()))
    pages = [piece.metadata["page"] for piece in found(overview, "Summarise Rivers", k=5)]
    assert len(pages) == 5
    assert pages[0] == 0
    # One of each further quarter.
    assert [(page - 1) * 4 // 39 for page in pages[1:]] == [0, 1, 2, 3]
    both = found(overview, "Compare Rivers and Weather", k=4)
    assert [piece.metadata["title"] for piece in both] == ["Rivers", "Weather", "Rivers"]


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


def test_a_model_is_shown_both_documents_that_it_is_to_compare() -> None:
    compiled, model = graph_of(
        direct("BM25 scores documents by shared words [1], sparsemax turns scores into probabilities [2].")
    )
    compiled.invoke({"question": "Compare BM25 and sparsemax"})
    prompt = model.prompts[0]
    assert "[1] BM25\n" in prompt
    assert "[2] Sparsemax\n" in prompt
    assert "Euclidean projection" in prompt


def test_a_planner_may_choose_it_in_words_of_its_own() -> None:
    asked = node("What do we own on BM25?", action="overview", action_input="summarise BM25")
    compiled, _ = graph_of(plan(asked), corrections("BM25 is a ranking function.", final="BM25 is a ranking function [1]."))
    out = compiled.invoke({"question": "So, any good stuff?"})
    assert out["chain"][0]["action"] == "overview"
    assert "bm25.md" in out["chain"][0]["evidence"]


def test_an_ordinary_turn_differs_by_the_line_of_the_action_alone() -> None:
    prompts = []
    for overview in (False, True):
        compiled, model = graph_of(direct("In 2016 [1]."), overview=overview)
        out = compiled.invoke({"question": "When was sparsemax introduced?"})
        prompts.append(model.prompts[0].splitlines())
        assert out["usage"]["retrievals"] == 1
        assert out["chain"][0]["action"] == "knowledge_retrieval"
    more = [line for line in prompts[1] if line not in prompts[0]]
    assert len(prompts[1]) == len(prompts[0]) + 1
    assert [line[:12] for line in more] == ["- overview: "]


def test_without_a_model_other_questions_never_reach_it() -> None:
    compiled = build_graph(retriever=demo(), actions=[Overview(demo())]).compile()
    plain = build_graph(retriever=demo()).compile()
    for question in (
        "Who introduced sparsemax?",
        "Which document describes the moon landing?",
        "What is the capital of Peru?",
    ):
        assert compiled.invoke({"question": question})["answer"] == plain.invoke({"question": question})["answer"]


def test_what_no_document_can_answer_is_told_so() -> None:
    compiled = build_graph(retriever=demo(), actions=[Overview(demo())]).compile()
    for question in ("Book a flight for two", "Will the moon be full tomorrow?"):
        out = compiled.invoke({"question": question})
        assert "This assistant cannot" in out["answer"]
        assert "answers questions from a collection" in out["answer"]
        assert out["citations"][0]["id"] == "overview:abilities"


def test_what_a_document_says_of_a_deed_comes_before_the_refusal() -> None:
    text = "To book a flight, ask the travel desk two weeks ahead. Open the valve before the pump runs."
    own = HopfieldRetriever.from_documents([Document(text, id="travel")], encoder=WordEncoder())
    compiled = build_graph(retriever=own, actions=[Overview(own)]).compile()
    assert compiled.invoke({"question": "Book a flight"})["answer"].startswith("To book a flight, ask the travel desk")
    assert compiled.invoke({"question": "Please open the valve"})["answer"].startswith("Open the valve")
    assert "cannot" in compiled.invoke({"question": "Send me a pizza"})["answer"]


def test_the_rows_of_a_summary_are_quoted_as_they_are_given() -> None:
    rows = Document("city: Oslo\npeople: 709000\n\ncity: Bergen\npeople: 291000", id="c", metadata={"title": "cities"})
    own = HopfieldRetriever.from_documents([rows], encoder=WordEncoder())
    out = build_graph(retriever=own, actions=[Overview(own)]).compile().invoke({"question": "Summarise cities"})
    given = "city: Oslo people: 709000 city: Bergen people: 291000"
    assert out["answer"] == f"cities: {given} [1]."
    assert out["citations"][0]["quote"] == given


def test_formats_beyond_the_fourth_are_counted_together() -> None:
    names = ("a.md", "b.md", "c.pdf", "d.docx", "e.pptx", "f.html", "g.epub")
    own = HopfieldRetriever.from_documents(
        [Document(f"Of {name}.", id=name, metadata={"source": name}) for name in names], encoder=WordEncoder()
    )
    [counted] = found(Overview(own), "How many documents are there?")
    assert counted.page_content.endswith("(2 Markdown files, 1 PDF file, 1 Word file, 1 PowerPoint file, and 2 others).")


def test_a_list_is_made_again_and_is_no_evidence_later() -> None:
    compiled = build_graph(retriever=demo(), actions=[Overview(demo())]).compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "a"}}
    for _ in range(2):
        out = compiled.invoke({"question": "List the documents"}, thread)
        assert out["chain"][0]["status"] == "filled"
    out = compiled.invoke({"question": "And the second one?"}, thread)
    assert {citation["source"] for citation in out["citations"]} == {"chain-of-thought.md"}
    out = compiled.invoke({"question": "Who introduced sparsemax?"}, thread)
    assert not any(citation["id"].startswith("overview:") for citation in out["citations"])
    assert not compiled.get_state(thread).values["evidence_memory"] or all(
        not piece["id"].startswith("overview:") for piece in compiled.get_state(thread).values["evidence_memory"]
    )


def test_questions_about_the_demonstration() -> None:
    documents, questions = corpus_questions.demo()
    with_it = corpus_questions.right(documents, questions, WordEncoder(), overview=True)
    assert [question.text for question, is_right in zip(questions, with_it, strict=True) if not is_right] == []


def test_most_questions_in_other_words_are_recognised() -> None:
    assert len(corpus_questions.recognised(WordEncoder())) >= 15


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data" / "squad2").exists(), reason="needs the evaluation data")
def test_questions_about_articles() -> None:
    documents, questions = corpus_questions.squad(SHARED / "data" / "squad2")
    with_it = corpus_questions.right(documents, questions, WordEncoder(), overview=True)
    assert [question.text for question, is_right in zip(questions, with_it, strict=True) if not is_right] == []
