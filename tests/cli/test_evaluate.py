"""The commands that measure, on small data of the same shape."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import Result

from langgraph_convcoa.datasets.queries import in_dev_part
from tests.cli.commands import convcoa
from tests.data import write_dataset, write_rows

WORDS = ["ants", "bees", "crabs", "ducks", "eels", "foxes", "goats", "hens", "ibises", "jays"]
pytestmark = pytest.mark.usefixtures("encoder")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    corpus = [
        {
            "id": f"p{i}",
            "title": word,
            "text": f"The {word} live in a {word} house. They were counted in {1900 + i} by Dr. {word.title()}.",
        }
        for i, word in enumerate(WORDS)
    ]
    queries = [
        {
            "id": f"{kind}{i}",
            "question": question.format(word=word),
            "history": [],
            "gold": [f"p{i}"],
            "answer": answer.format(word=word.title(), year=1900 + i),
            "split": "dev" if i % 2 else "train",
        }
        for i, word in enumerate(WORDS)
        for kind, question, answer in (
            ("when", "When were the {word} counted?", "{year}"),
            ("who", "Who counted the {word}?", "Dr. {word}"),
        )
    ]
    return write_dataset(tmp_path / "data", queries, corpus, ".jsonl.gz")


def evaluate(*arguments: object, code: int | None = None) -> Result:
    return convcoa("evaluate", *arguments, code=code)


def test_retrieval_methods_are_compared_over_pool_and_distractors(data: Path, tmp_path: Path) -> None:
    extra = write_rows(tmp_path / "extra.jsonl.gz", [{"id": f"x{i}", "text": f"Stones number {i}."} for i in range(5)])
    arguments = ["retrieval", data, "--methods", "bm25,hybrid", "--split", "dev", "--distractors", f"{extra}:3"]
    report = json.loads(evaluate(*arguments, "--json").stdout)
    assert (report["documents"], report["queries"], list(report["methods"])) == (13, 10, ["bm25", "hybrid"])
    assert report["methods"]["hybrid"]["MRR"] == 1.0
    table = evaluate(*arguments).stdout
    assert "hybrid" in table
    assert "Recall@100" in table


def test_several_folders_have_a_table_each_and_one_of_the_means(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    arguments = ["retrieval", data, other, "--methods", "question,dense", "--split", "dev", "--baseline", "question"]
    report = json.loads(evaluate(*arguments, "--json").stdout)
    assert [source["dataset"] for source in report["sources"]] == ["data", "other"]
    assert (report["baseline"], report["macro"]["dense"]["queries"]) == ("question", 20)
    assert 0 <= report["macro"]["dense"]["p"]["MRR"] <= 1
    low, high = report["macro"]["dense"]["intervals"]["MRR"]
    assert low <= report["macro"]["dense"]["MRR"] <= high
    assert "mean over 2 sources" in evaluate(*arguments).stdout


def test_a_published_file_and_its_part_that_training_leaves_out(tmp_path: Path) -> None:
    stories = [
        {
            "id": f"s{i}",
            "source": "made",
            "story": f"The {word} live in a {word} house.",
            "questions": [{"input_text": f"Where do the {word} live?", "turn_id": 1}],
            "answers": [{"input_text": f"In a {word} house.", "span_start": 0, "turn_id": 1}],
        }
        for i, word in enumerate(WORDS)
    ]
    path = write_rows(tmp_path / "coqa.json", {"data": stories})
    report = json.loads(evaluate("retrieval", path, "--methods", "dense", "--split", "dev", "--json").stdout)
    expected = sum(in_dev_part(f"s{i}") for i in range(len(WORDS)))
    assert 0 < report["queries"] == expected < len(WORDS)
    assert (report["part"], report["methods"]["dense"]["MRR"]) == ("dev: 20% of the conversations, by hash", 1.0)


def test_the_lexical_channel_is_in_the_same_state_in_all_methods(data: Path) -> None:
    arguments = ["retrieval", data, "--methods", "hybrid,dense,untrained", "--lexical-weight", "0", "--json"]
    methods = json.loads(evaluate(*arguments).stdout)["methods"]
    assert methods["hybrid"]["MRR"] == methods["dense"]["MRR"] == methods["untrained"]["MRR"]


def test_wrong_methods_and_missing_data_are_one_line(data: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (["retrieval", data, "--methods", "magic"], "magic"),
        (["retrieval", data, "--methods", ""], "known: bm25"),
        (["retrieval", tmp_path / "nowhere"], "nowhere"),
        (["retrieval", data, "--split", "test"], "test"),
        (["retrieval", data, "--distractors", f"{data}/none.jsonl:3"], "none.jsonl"),
        (["retrieval", data, data], "named data"),
        (["retrieval", data, "--methods", "trained"], "--model"),
        (["retrieval", data, "--model", tmp_path / "nowhere"], "nowhere"),
        (["retrieval", data, "--index", tmp_path / "nowhere"], "nowhere"),
        (["retrieval", data, "--baseline", "bm25", "--methods", "dense"], "baseline"),
        (["retrieval", data / "queries.jsonl.gz"], "no known format"),
        (["qa", tmp_path / "nowhere"], "nowhere"),
    ):
        result = evaluate(*arguments, code=2)
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert message in line


def test_without_a_model_extracted_answers_are_compared_with_gold_answers(data: Path, tmp_path: Path) -> None:
    arguments = ["qa", data, "--sample", "6", "--seed", "1", "-k", "3", "--out", tmp_path / "run"]
    result = evaluate(*arguments, "--json", code=0)
    report = json.loads(result.stdout)
    assert (report["questions"], report["settings"]["model"], list(report["methods"])) == (6, None, ["extractive"])
    figures = report["methods"]["extractive"]
    assert (figures["quality"]["cover_em"]["mean"], figures["gold_found"], figures["refused"]) == (1.0, 1.0, 0.0)
    assert "cover-EM" in evaluate(*arguments).stdout


@pytest.mark.parametrize("command", ["retrieval", "verification", "qa"])
def test_every_evaluation_explains_itself_with_an_example(command: str) -> None:
    assert f"convcoa evaluate {command}" in evaluate(command, "--help").stdout
