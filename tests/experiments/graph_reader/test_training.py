"""Training and comparison of graph readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langchain_core.documents import Document

from experiments.graph_reader.__main__ import main
from experiments.graph_reader.training import reader_examples
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from tests.experiments.graph_reader.tiny import TOWNS, save_tiny_model, towns


def test_examples_have_short_answers_that_a_gold_passage_holds_with_neighbours_beside_it() -> None:
    corpus = tuple(Document(f"passage {n} holds a{n}", id=f"p{n}") for n in range(9))
    asked = [
        ("a4", ("p4",)),
        ("yes", ("p8",)),
        ("a0", ("p4",)),  # in another passage
        ("", ("p4",)),
        ("one two three four five six seven eight nine", ("p4",)),
        ("a4", ("gone",)),
    ]
    queries = tuple(Query(str(n), "?", gold=gold, answer=answer) for n, (answer, gold) in enumerate(asked))
    found = reader_examples(Dataset("d", queries, corpus), passages=3)
    assert [(one.query.id, {document.id for document in one.documents}) for one in found] == [
        ("0", {"p3", "p4", "p5"}),
        ("1", {"p6", "p7", "p8"}),
    ]
    assert found == reader_examples(Dataset("d", queries, corpus), passages=3)
    assert len(reader_examples(Dataset("d", queries, corpus), passages=3, sample=1)) == 1
    with pytest.raises(InputError, match="no question with an answer"):
        reader_examples(Dataset("d", queries[2:], corpus))


def test_the_command_compares_readers_without_and_with_the_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, dataset, answers = tmp_path / "towns", towns(), tmp_path / "answers.jsonl"
    data.mkdir()
    rows = [
        {"id": one.id, "question": one.question, "gold": list(one.gold), "answer": one.answer, "split": one.split}
        for one in dataset.queries
    ]
    passages = [{"id": one.id, "title": "Town", "text": one.page_content} for one in dataset.corpus]
    for name, lines in (("queries", rows), ("corpus", passages)):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = ["--model", save_tiny_model(tmp_path / "model"), "--rank", "2", "--longest", "30"]
    run = ["--steps", "2", "--device", "cpu", "--answers", str(answers)]
    monkeypatch.setattr("sys.argv", ["graph_reader", str(data), *model, *run])
    main()
    heading, without, with_graph = capsys.readouterr().out.splitlines()
    assert heading.split() == ["graph", "EM", "p", "F1", "p", "seconds"]
    # Only the second reader is tested against the first: "EM (low to high) p F1 (low to high) p seconds".
    assert (without.split()[0], len(without.split())) == ("no", 10)
    assert (with_graph.split()[0], len(with_graph.split())) == ("yes", 12)
    written = [json.loads(line) for line in answers.read_text().splitlines()]
    # A sixth of the questions is in the split "dev".
    assert len(written) == 6
    assert all(line.keys() == {"id", "gold", "without graph", "with graph"} and line["gold"] in TOWNS for line in written)
