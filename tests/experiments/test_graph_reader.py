"""The command that compares the graph reader with and without its graph."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from langchain_core.documents import Document

# Its import calls the deprecated `torch.jit.script`.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn  # noqa: F401

from experiments.graph_reader.__main__ import main
from langgraph_convcoa.datasets.queries import Dataset, Query
from tests.data import write_dataset
from tests.training.planner.tiny import tiny_policy

NAMES = ("ada", "bob", "cleo", "dan", "eve", "finn")
TOWNS = ("rome", "oslo", "paris", "lima", "cairo", "bern")


def towns() -> Dataset:
    corpus = tuple(
        Document(f"{name} lives in {TOWNS[(n + shift) % 6]}.", id=f"{name}-{shift}", metadata={"title": "Town"})
        for shift in range(6)
        for n, name in enumerate(NAMES)
    )
    queries = tuple(
        Query(
            f"q{document.id}",
            f"Where is {document.page_content.split()[0]}?",
            gold=(str(document.id),),
            answer=document.page_content.split()[-1].rstrip("."),
            split="dev" if number % 6 == 5 else "train",
        )
        for number, document in enumerate(corpus)
    )
    return Dataset("towns", queries, corpus)


def test_the_command_compares_readers_without_and_with_the_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, answers = towns(), tmp_path / "answers.jsonl"
    folder = write_dataset(tmp_path / "towns", data.queries, data.corpus)
    model = ["--model", str(tiny_policy(tmp_path / "model")), "--rank", "2", "--longest", "90"]
    run = ["--steps", "2", "--device", "cpu", "--answers", str(answers)]
    monkeypatch.setattr("sys.argv", ["graph_reader", str(folder), *model, *run])
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
