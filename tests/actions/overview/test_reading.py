"""Which questions are about a collection, and what they ask for."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from langgraph_convcoa.actions.overview.collection import Collection, Entry
from langgraph_convcoa.actions.overview.reading import Wanted, parted, read
from tests import SHARED

LISTED = [("List the documents", "1. A [1]")]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What is in here?", Wanted("contents")),
        ("what's in here", Wanted("contents")),
        ("Please summarise everything", Wanted("contents")),
        ("What is this collection about?", Wanted("contents")),
        ("What does the knowledge base contain?", Wanted("contents")),
        ("What are the documents about?", Wanted("contents")),
        ("List the documents", Wanted("list")),
        ("Could you show me all the files that you have?", Wanted("list")),
        ("What documents did I upload?", Wanted("list")),
        ("Which reports are there?", Wanted("list", noun="reports")),
        ("Which PDFs are there", Wanted("list", suffix="pdf")),
        ("What is the newest document?", Wanted("list", order="newest")),
        ("How many reports are there?", Wanted("count", noun="reports")),
        ("How many documents does the collection have", Wanted("count")),
        ("Which documents are from 2023?", Wanted("list", years=(2023, 2023))),
        ("How many papers were published between 2019 and 2021?", Wanted("count", years=(2019, 2021), noun="papers")),
        ("list the documents since 2020", Wanted("list", years=(2020, 9999))),
        ("list the documents before 2020", Wanted("list", years=(0, 2019))),
        ("Which articles are by Smith?", Wanted("list", noun="articles", words=("smith",))),
        ("What are the main topics?", Wanted("topics")),
        ("Which themes do the documents cover?", Wanted("topics")),
        ("Summarise BM25.", Wanted("summary", ("BM25",))),
        ("Can you give me a short summary of “The Report”?", Wanted("summary", ("The Report",))),
        ("What does notes.md say?", Wanted("summary", ("notes.md",))),
        ("Compare A with B", Wanted("comparison", ("A with B",))),
        ("How do A and B differ?", Wanted("comparison", ("A and B",))),
        ("What do the documents talk about?", Wanted("contents")),
        ("Give me a list of everything you know about", Wanted("contents")),
        ("How large is your collection?", Wanted("count")),
        ("Name all the papers in the database", Wanted("list", noun="papers")),
        ("Do you have anything on BM25?", Wanted("list", words=("bm25",))),
        ("Main themes?", Wanted("topics")),
        ("tl;dr of BM25", Wanted("summary", ("BM25",))),
        ("In a few sentences, what is notes.md about?", Wanted("summary", ("notes.md",))),
        ("Explain the BM25 document briefly", Wanted("summary", ("the BM25 document",))),
        ("Summarise the first document", Wanted("summary", ("#1",))),
        ("BM25 vs sparsemax", Wanted("comparison", ("BM25 vs sparsemax",))),
        ("What sets A apart from B?", Wanted("comparison", ("A apart from B",))),
        ("Who are you?", Wanted("assistant")),
        ("What can this assistant do?", Wanted("assistant")),
        ("Please send an email to Ada", Wanted("deed")),
        ("Remind me to buy milk", Wanted("deed")),
        ("Can you open the window for me?", Wanted("deed")),
        ("Will it rain in Oslo tomorrow?", Wanted("future")),
    ],
)
def test_what_is_asked_of_a_collection(question: str, wanted: Wanted) -> None:
    assert read(question) == wanted


@pytest.mark.parametrize(
    "question",
    [
        "Who introduced sparsemax?",
        "How many reports did she write?",
        "How many articles were there?",
        "What is the topic?",
        "What is in the library?",
        "What does Article 370 say?",
        "Compared to softmax, what does sparsemax do?",
        "Are there any other interesting aspects about this article?",
        "Order the events of 1812 by date",
        "Please open the valve",
        "Remove the filter",
        "Install the pump",
        "Turn on the pump",
        "Set the alarm",
        "summarise this",
        "and the second one?",
        "more",
        "What was it about?",
        "List " + "very " * 100 + "many documents",
    ],
)
def test_other_questions_are_left_alone(question: str) -> None:
    wanted = read(question)
    # What is about some documents must name those that are there.
    assert wanted is None or wanted.is_about_some


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("and the second one?", Wanted("summary", ("#2",))),
        ("the last one", Wanted("summary", ("#-1",))),
        ("Summarise number 3", Wanted("summary", ("#3",))),
        ("compare the first two", Wanted("comparison", ("#1", "#2"))),
        ("more", Wanted("list", page=1)),
        ("and from 2022?", Wanted("list", years=(2022, 2022))),
        ("What are they called?", Wanted("list")),
        ("Who wrote it?", None),
    ],
)
def test_a_follow_up_goes_on_from_a_list(question: str, wanted: Wanted | None) -> None:
    assert read(question, LISTED) == wanted


def test_follow_ups_of_follow_ups() -> None:
    history = [("Which documents are from 2023?", ""), ("and from 2022?", "")]
    assert read("the second one", history) == Wanted("summary", ("#2",), years=(2022, 2022))
    assert read("more", [*LISTED, ("more", "")]) == Wanted("list", page=2)
    summarised = [("Summarise BM25", "")]
    assert read("and what about the Nobel Prize?", summarised) == Wanted("summary", ("the Nobel Prize",))
    assert read("Compare it with sparsemax", summarised) == Wanted("comparison", ("BM25 with sparsemax",))
    assert read("and who invented it?", summarised) is None
    # A turn between that asked something else ends it.
    assert read("the second one", [*LISTED, ("Who introduced sparsemax?", "")]) is None


def test_a_text_is_parted_into_the_names_that_it_may_hold() -> None:
    assert parted("a and b") == [("a", "b")]
    assert parted("a, b and c")[-1] == ("a", "b", "c")
    assert parted("a") == []


def questions(name: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    with gzip.open(SHARED / "data" / name / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            yield row["question"], [(question, answer) for question, answer in row.get("history") or ()]


def squad_titles() -> list[str]:
    with gzip.open(SHARED / "data" / "squad2" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return list(dict.fromkeys(json.loads(line)["title"].replace("_", " ") for line in lines))


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "data" / "squad2").exists(), reason="needs the evaluation data")
def test_no_more_than_2_of_1000_ordinary_questions_are_taken_for_one_about_the_collection() -> None:
    """Of each data set, over SQuAD's articles: three of all 92,547 questions of squad2 are, and one of the others' 5,264."""
    titles = squad_titles()
    collection = Collection(None, tuple(Entry(t, "", (n,), "", {"title": t}) for n, t in enumerate(titles)))  # type: ignore[arg-type]
    alarms = {}
    for name, step in (("squad2", 5), ("mtrag", 1), ("quac_dev", 1), ("abg_coqa", 1)):
        asked = list(questions(name))[::step]
        taken = [
            question
            for question, history in asked
            if (wanted := read(question, history)) is not None and (not wanted.is_about_some or collection.has(wanted))
        ]
        assert asked
        alarms[name] = len(taken) / len(asked)
    assert max(alarms.values()) <= 0.002, alarms
