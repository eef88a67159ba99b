"""Sets of questions that need several passages, on small files of their published shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from tests.data import write_rows


def test_retrieval_needs_passages_and_says_so(tmp_path: Path) -> None:
    write_rows(tmp_path / "queries.jsonl", [{"id": "1", "question": "Who?", "answer": "Ada"}])
    with pytest.raises(InputError, match=r"no corpus\.jsonl"):
        load_dataset(tmp_path)
    [query] = load_dataset(tmp_path, passages="optional").queries
    assert query.references == ("Ada",)


def test_a_set_that_is_not_read_is_told_what_is(tmp_path: Path) -> None:
    rows = [{"id": 7, "label": "SUPPORTS", "claim": "Ada wrote.", "evidence": []}]
    with pytest.raises(InputError, match=r"in no known format.*write other questions as queries\.jsonl"):
        load_dataset(write_rows(tmp_path / "paper_dev.jsonl", rows), passages="optional")


CONTEXT = [["Ed Wood (film)", ["It is a film.", " Tim Burton directed it."]], ["Tim Burton", ["He was born in 1958."]]]
HOTPOT: dict[str, Any] = {
    "_id": "5a8b",
    "question": "When was the director of Ed Wood born?",
    "answer": "1958",
    "type": "bridge",
    "supporting_facts": [["Tim Burton", 0], ["Ed Wood (film)", 1], ["Ed Wood (film)", 0]],
    "context": [*CONTEXT, ["Ed Gein", ["He was another man."]]],
}


def columns(question: dict[str, Any], *, packed: bool = False) -> dict[str, Any]:
    """A question as hubs give it: lists by column, or those as JSON in a text."""
    titles, sentences = zip(*question["context"], strict=True)
    named, numbers = zip(*question["supporting_facts"], strict=True)
    values = {"context": {"title": titles, "sentences": sentences}, "supporting_facts": {"title": named, "sent_id": numbers}}
    return {**question, "id": question["_id"], **({key: json.dumps(v) for key, v in values.items()} if packed else values)}


@pytest.mark.parametrize("form", [lambda row: row, columns, lambda row: columns(row, packed=True)])
@pytest.mark.parametrize("name", ["hotpot_dev_distractor_v1.json", "dev.jsonl"])
def test_hotpotqa_and_2wiki_as_published(tmp_path: Path, form: Any, name: str) -> None:
    other = {**HOTPOT, "_id": "5a8c", "context": CONTEXT[:1], "supporting_facts": [["Ed Wood (film)", 1]]}
    dataset = load_dataset(write_rows(tmp_path / name, [form(HOTPOT), form(other)]))
    first, second = dataset.queries
    texts = {str(document.id): (document.metadata["title"], document.page_content) for document in dataset.corpus}
    # A paragraph that two questions carry is one passage.
    assert len(texts) == len(dataset.corpus) == 3
    assert [texts[identity] for identity in first.gold] == [
        ("Ed Wood (film)", "It is a film. Tim Burton directed it."),
        ("Tim Burton", "He was born in 1958."),
    ]
    assert second.gold == first.gold[:1]
    assert (first.id, first.answer, first.split, first.extra["type"]) == ("5a8b", "1958", "dev", "bridge")


def test_musique_as_published(tmp_path: Path) -> None:
    row = {
        "id": "2hop__1_2",
        "paragraphs": [
            {"idx": 0, "title": "Stanley", "paragraph_text": "A city in North Dakota.", "is_supporting": True},
            {"idx": 1, "title": "Stanley", "paragraph_text": "A name.", "is_supporting": False},
        ],
        "question": "Where is it?",
        "question_decomposition": [{"id": 1}],
        "answer": "North Dakota",
        "answer_aliases": ["ND", "North Dakota"],
        "answerable": True,
    }
    dataset = load_dataset(
        write_rows(tmp_path / "musique_full_v1.0_dev.jsonl", [row, {**row, "id": "no", "answerable": False}])
    )
    asked, unanswerable = dataset.queries
    # Two paragraphs of one title are two passages.
    assert len(dataset.corpus) == 2
    assert [document.page_content for document in dataset.corpus if document.id in asked.gold] == ["A city in North Dakota."]
    assert (asked.references, asked.split) == (("North Dakota", "ND"), "dev")
    assert (unanswerable.references, unanswerable.extra["answerable"]) == ((), False)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"context": [["Ed Wood", "no list"]]}, "item 1: the sentences of `context` must be a list of strings"),
        ({"context": "{"}, r"item 1: `context` must be a list of \[title, sentences\]"),
        ({"supporting_facts": [["Ed Wood"]]}, r"item 1: `supporting_facts` must be a list of \[title, sent_id\]"),
        ({"supporting_facts": {"title": ["a"], "sent_id": []}}, "item 1: `supporting_facts` must be"),
        ({"context": [[7, ["a"]]]}, "item 1: `context` must be"),
    ],
)
def test_rows_that_are_not_as_published(tmp_path: Path, broken: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset(write_rows(tmp_path / "dev.json", [HOTPOT | broken]))
