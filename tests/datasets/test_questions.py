"""Single-turn question sets on small files of their published shapes; only two of them carry passages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics import answer_metrics
from tests.data import write_rows


def queries(path: Path, split: str | None = None) -> tuple[Query, ...]:
    dataset = load_dataset(path, split=split, passages="optional")
    assert dataset.corpus == ()
    return dataset.queries


WEB = [
    {
        "url": "http://www.freebase.com/view/en/justin_bieber",
        "utterance": "what is the name of justin bieber brother?",
        "targetValue": '(list (description "Jazmyn Bieber") (description "Jaxon \\"J\\" Bieber"))',
    },
    {"url": "http://x", "utterance": "what do jamaican people speak?", "targetValue": "(list (description English))"},
]


def test_webquestions_as_published(tmp_path: Path) -> None:
    first, second = queries(write_rows(tmp_path / "webquestions.examples.train.json", WEB))
    assert first.question == "what is the name of justin bieber brother?"
    assert first.references == ("Jazmyn Bieber", 'Jaxon "J" Bieber')
    assert (first.answer, first.split, first.gold) == ("Jazmyn Bieber", "train", ())
    assert (second.id, second.references) == ("webquestions-train-2", ("English",))
    assert answer_metrics('Jaxon "J" Bieber.', first.references)["em"] == 1.0


@pytest.mark.parametrize("key", ["answers", "answer"])
@pytest.mark.parametrize("name", ["test.jsonl", "test.json"])
def test_webquestions_without_freebase(tmp_path: Path, key: str, name: str) -> None:
    row = {"question": "what do jamaican people speak?", key: ["Jamaican Creole", "English"]}
    [query] = queries(write_rows(tmp_path / name, [row]))
    assert (query.references, query.split) == (("Jamaican Creole", "English"), "test")


def test_bigbench(tmp_path: Path) -> None:
    task = {
        "name": "date_understanding",
        "examples": [
            {
                "input": "Today is 1/1/2000. What is tomorrow?",
                "target_scores": {"01/02/2000": 1, "01/01/2000": 0, "01/03/2000": 0},
            },
            {"input": "Who was she?", "target": ["Ada", "Ada Lovelace"]},
            {"input": "Where?", "target": "London"},
            {"input": "Which?", "target_scores": {"a": 0, "b": 0}},
        ],
    }
    first, second, third, none = queries(write_rows(tmp_path / "task.json", task))
    assert first.question.startswith("Today is 1/1/2000. What is tomorrow? (A) ")
    assert all(f") {choice}" in first.question for choice in ("01/01/2000", "01/02/2000", "01/03/2000"))
    bare, lettered = first.references
    assert bare == "01/02/2000"
    assert lettered.endswith(bare)
    assert lettered in first.question
    assert (first.id, first.extra) == ("date_understanding-1", {"task": "date_understanding"})
    assert (second.references, third.references, none.references) == (("Ada", "Ada Lovelace"), ("London",), ())


def test_the_right_choice_of_a_bigbench_task_is_not_always_the_first(tmp_path: Path) -> None:
    scores = {f"choice {n}": int(n == 0) for n in range(4)}
    task = {"name": "t", "examples": [{"input": f"Which one is number {n}?", "target_scores": scores} for n in range(40)]}
    asked = queries(write_rows(tmp_path / "task.json", task))
    letters = [query.references[1][:3] for query in asked]
    assert set(letters) == {"(A)", "(B)", "(C)", "(D)"}
    assert [query.question for query in queries(tmp_path / "task.json")] == [query.question for query in asked]


SOCIAL = {
    "context": "Alex fed Robin.",
    "question": "What was Alex's work?",
    "answerA": "at the jail",
    "answerB": "so Robin can eat",
    "answerC": "release her",
}


def test_socialiqa_with_its_labels(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "dev.jsonl", [SOCIAL, SOCIAL])
    assert [query.references for query in queries(path)] == [(), ()]
    write_rows(tmp_path / "dev-labels.lst", "2\n1\n")
    first, second = queries(tmp_path, "dev")
    assert first.question.startswith("Alex fed Robin. What was Alex's work? (A) at the jail (B) so")
    assert (first.references, second.answer) == (("so Robin can eat", "(B) so Robin can eat"), "at the jail")
    with pytest.raises(InputError, match=r"dev\.jsonl, line 2: dev-labels\.lst has 1 labels"):
        queries(write_rows(tmp_path / "dev-labels.lst", "2\n").with_name("dev.jsonl"))
    with pytest.raises(InputError, match=r"dev-labels\.lst: 3 labels for the 2 questions of dev\.jsonl"):
        queries(write_rows(tmp_path / "dev-labels.lst", "2\n1\n1\n").with_name("dev.jsonl"))
    with pytest.raises(InputError, match=r"dev\.jsonl, line 1: the label must be 1 to 3 or A to C, not '4'"):
        queries(write_rows(tmp_path / "dev-labels.lst", "4\n1\n").with_name("dev.jsonl"))


def test_socialiqa_of_a_later_version(tmp_path: Path) -> None:
    [query] = queries(write_rows(tmp_path / "socialIQa_v1.4_trn.jsonl", [SOCIAL | {"correct": "C"}]))
    assert (query.answer, query.split) == ("release her", "train")


def test_truthfulqa(tmp_path: Path) -> None:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["Type", "Category", "Question", "Best Answer", "Correct Answers", "Incorrect Answers", "Source"])
    rows.writerow(["A", "Law", 'What, "really"?', "Nothing", "Nothing happens; You watch;  ; Nothing", "You die; All", "x"])
    rows.writerow(["A", "Law", "Why?", "", "", "", ""])
    first, second = queries(write_rows(tmp_path / "TruthfulQA.csv", text.getvalue()))
    assert (first.question, first.answer) == ('What, "really"?', "Nothing")
    assert first.references == ("Nothing", "Nothing happens", "You watch")
    assert first.extra == {"category": "Law", "incorrect": ["You die", "All"]}
    assert second.references == ()
    write_rows(tmp_path / "other.csv", "a,b\n1\n")
    assert len(queries(tmp_path)) == 2
    with pytest.raises(InputError, match=r"bad\.csv, line 2: 1 fields where the first line names 3"):
        queries(write_rows(tmp_path / "bad.csv", "Question,Best Answer,Correct Answers\nx\n"))


STRATEGY = {
    "qid": "4fd6",
    "term": "Laptop",
    "question": "Did Aristotle use a laptop?",
    "answer": False,
    "decomposition": ["When did Aristotle live?", "Is #2 before #1?"],
    "facts": ["He died in 322 BC."],
    "evidence": [[[["Aristotle-1"]], ["operation"]], [[["Aristotle-1", "Laptop-2"]], ["no_evidence"]]],
}


def test_strategyqa(tmp_path: Path) -> None:
    [query] = queries(write_rows(tmp_path / "strategyqa_train.json", [STRATEGY]))
    assert (query.id, query.references, query.split, query.gold) == ("4fd6", ("no",), "train", ())
    assert query.extra["decomposition"] == STRATEGY["decomposition"]
    write_rows(
        tmp_path / "strategyqa_train_paragraphs.json",
        {
            "Aristotle-1": {"title": "Aristotle", "section": "", "content": "He died in 322 BC."},
            "Laptop-2": {"title": "Laptop", "content": "Since 1981."},
            "Other-1": {"title": "Other", "content": "Unused."},
        },
    )
    dataset = load_dataset(tmp_path)
    assert dataset.queries[0].gold == ("Aristotle-1", "Laptop-2")
    assert [passage.page_content for passage in dataset.corpus] == ["He died in 322 BC.", "Since 1981."]
    hidden = {key: value for key, value in STRATEGY.items() if key not in ("answer", "evidence")}
    assert queries(write_rows(tmp_path / "test" / "strategyqa_test.json", [hidden]))[0].references == ()


def test_fever(tmp_path: Path) -> None:
    rows = [
        {"id": 7, "verifiable": "VERIFIABLE", "label": "SUPPORTS", "claim": "Ada wrote.", "evidence": [[[1, 2, "Ada_L", 0]]]},
        {"id": 8, "label": "NOT ENOUGH INFO", "claim": "Ada swam.", "evidence": [[[1, None, None, None]]]},
        {"id": 9, "claim": "Hidden."},
    ]
    write_rows(tmp_path / "paper_dev.jsonl", rows)
    pages = [{"id": "", "text": "", "lines": ""}, {"id": "Ada_L", "text": "Ada wrote.", "lines": "0\tAda wrote."}]
    write_rows(tmp_path / "wiki-001.jsonl", pages)
    dataset = load_dataset(tmp_path)
    first, second, third = dataset.queries
    assert first.question.startswith("Ada wrote. Does the evidence support or refute")
    assert (first.id, first.references, first.gold, first.split) == ("7", ("SUPPORTS",), ("Ada_L",), "dev")
    assert (second.gold, second.answer, second.extra["answerable"]) == ((), "NOT ENOUGH INFO", False)
    assert third.references == ()
    assert [passage.id for passage in dataset.corpus] == ["Ada_L"]


ASQA = {
    "ambiguous_question": "Who won?",
    "qa_pairs": [{"question": "Who won in 1990?", "short_answers": ["Ada", "A. L."], "context": "x", "wikipage": None}],
    "annotations": [{"long_answer": "Ada won in 1990.", "knowledge": []}, {"long_answer": "In 1990 Ada did."}],
}


def test_asqa(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "ASQA.json", {"train": {"-1": ASQA}, "dev": {"-2": ASQA | {"annotations": []}}})
    [train] = queries(path, "train")
    assert (train.id, train.question) == ("-1", "Who won?")
    assert train.references == ("Ada won in 1990.", "In 1990 Ada did.")
    assert train.extra == {"short_answers": [["Ada", "A. L."]]}
    assert queries(path, "dev")[0].references == ()
    [line] = queries(write_rows(tmp_path / "lines" / "dev.jsonl", [ASQA | {"sample_id": "5"}]))
    assert (line.id, line.split, len(line.references)) == ("5", "dev", 2)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a.json", [WEB[0] | {"targetValue": "x"}], r"a\.json, item 1: `targetValue` must be as in"),
        ("a.json", [*WEB, {"url": "x"}], r"a\.json, item 3: `question`"),
        ("a.jsonl", [{"question": "x", "answers": ["y"]}, {"question": "x", "answers": [3]}], r"line 2: `answers` must be"),
        ("t.json", {"examples": [{"input": "x", "target_scores": {"a": "b"}}]}, r"example 1: `target_scores`"),
        ("t.json", {"examples": [{"input": "", "target": "b"}]}, r"t\.json, example 1: `input`"),
        ("t.json", {"examples": [{"input": "x", "target": "b"}, {"input": "x", "target": 3}]}, r"example 2: `target` must be"),
        ("t.json", {"examples": [{"input": "x", "target_scores": {str(n): n for n in range(27)}}]}, r"27 choices"),
        ("s.jsonl", [SOCIAL | {"answerB": 3}], r"s\.jsonl, line 1: `answerB`"),
        ("s.jsonl", [SOCIAL | {"correct": "Z"}], r"line 1: the label"),
        ("q.json", [STRATEGY | {"qid": None}], r"q\.json, item 1: `qid`"),
        ("f.jsonl", [{"id": 1, "claim": "x", "label": "TRUE"}], r"f\.jsonl, line 1: `label` must be one of SUPPORTS"),
        ("f.jsonl", [{"id": 1, "claim": "x", "evidence": [[7]]}], r"line 1: `evidence`"),
        ("f.jsonl", [{"id": 1, "claim": "x"}, {"id": 1, "claim": "y"}], r"line 2: the id '1' is there already, in"),
        ("asqa.json", {"dev": {"1": ASQA | {"annotations": "x"}}}, r"asqa\.json, dev 1: `annotations`"),
        ("asqa.json", {"dev": {"1": ASQA, "2": 3}}, r"asqa\.json, dev 2: must be a JSON object"),
        ("asqa.json", {"dev": {"1": ASQA}, "version": "1"}, r"'version' must be an object"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(write_rows(tmp_path / name, value), passages="optional")
    assert "\n" not in str(caught.value)


def test_retrieval_needs_passages_and_says_so(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "webquestions.json", WEB)
    with pytest.raises(InputError, match=r"has no passages; put a passage file \(\.jsonl or \.tsv\)"):
        load_dataset(path)
    write_rows(tmp_path / "own" / "queries.jsonl", [{"id": "1", "question": "Who?", "answer": "Ada"}])
    with pytest.raises(InputError, match=r"no corpus\.jsonl"):
        load_dataset(tmp_path / "own")
    assert queries(tmp_path / "own")[0].references == ("Ada",)


COMPMIX: dict[str, Any] = {
    "question_id": "3871",
    "question": "Who wrote the notes on the engine?",
    "domain": "books",
    "entities": [{"id": "Q2", "label": "Analytical Engine"}],
    "answers": [{"id": "Q7259", "label": "Ada Lovelace"}, {"id": "Q1", "label": "Augusta Ada King"}],
    "answer_text": "Ada Lovelace",
    "answer_src": "info",
}
TIMES: dict[str, Any] = {
    "Id": 12945,
    "Question": "when was ada lovelace born",
    "Temporal signal": ["No signal"],
    "Temporal question type": ["Temp.Ans"],
    "Answer": [{"AnswerType": "Value", "AnswerArgument": "1815-12-10T00:00:00Z"}],
    "Data source": "ComQA",
    "Question creation date": "2019-06-03",
    "Data set": "test",
}


def read(path: Path, *rows: dict[str, Any]) -> Any:
    return load_dataset(write_rows(path, rows), passages="optional")


def test_compmix_as_published(tmp_path: Path) -> None:
    other = {name: value for name, value in COMPMIX.items() if name != "question_id"}
    first, second = read(tmp_path / "dev_set.json", COMPMIX, other).queries
    assert (first.id, first.question, first.split) == ("3871", COMPMIX["question"], "dev")
    assert first.references == ("Ada Lovelace", "Augusta Ada King")
    assert (first.extra["answer_src"], first.extra["domain"]) == ("info", "books")
    assert first.extra["entities"] == COMPMIX["entities"]
    assert second.id == "compmix-dev-2"


def test_timequestions_as_published(tmp_path: Path) -> None:
    entity = {"AnswerType": "Entity", "WikidataQid": "Q7259", "WikidataLabel": "Ada Lovelace", "WikipediaURL": ""}
    first, second = read(tmp_path / "test.json", TIMES, {**TIMES, "Id": 2, "Answer": [entity]}).queries
    assert (first.id, first.split, first.answer) == ("12945", "test", "1815-12-10")
    assert first.references == ("1815-12-10", "1815-12-10T00:00:00Z")
    assert first.extra["Temporal question type"] == ["Temp.Ans"]
    assert second.references == ("Ada Lovelace",)


@pytest.mark.parametrize("broken", [{**COMPMIX, "answers": ["Ada"]}, {**TIMES, "Answer": "Ada"}, {**TIMES, "Question": " "}])
def test_a_broken_row_is_told_with_its_file(tmp_path: Path, broken: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="train"):
        read(tmp_path / "train.json", broken)


def test_without_passages_they_are_no_retrieval_data(tmp_path: Path) -> None:
    read(tmp_path / "train.json", COMPMIX)
    with pytest.raises(InputError, match="has no passages"):
        load_dataset(tmp_path / "train.json")


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
