"""The graph reader: the links of its graph, their effect on the network, the loss, and the command that compares readers."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from langchain_core.documents import Document

# Its import calls the deprecated `torch.jit.script`.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn  # noqa: F401

from experiments.graph_reader.__main__ import main
from experiments.graph_reader.model import GraphReaderModel, ReaderSettings
from tests.data import write_dataset
from tests.experiments.tiny_llama import TOWNS, save_tiny_model, towns

SMALL = ReaderSettings(rank=2, longest=24)
LIVES = [Document("ada lives in rome. bob and ada.", id="a"), Document("bob lives in oslo.", id="b")]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("reader") / "model")


@pytest.fixture(scope="module")
def model(tiny_model: str) -> GraphReaderModel:
    return GraphReaderModel.load(tiny_model, SMALL)


def test_only_the_answer_has_a_loss(model: GraphReaderModel) -> None:
    """The mean of -log p of the answer's tokens, computed from the logits at their places."""
    text = model.text.text("Where is ada?", LIVES, answer="rome")
    inputs, mask = model.embeddings([text])
    logits = model.language_model(inputs_embeds=inputs, attention_mask=mask).logits[0]
    places = range(len(text) - len(text.answer) - 1, len(text) - 1)
    wanted = -sum(logits[place].log_softmax(-1)[token] for place, token in zip(places, text.answer, strict=True)) / 2
    torch.testing.assert_close(model.losses([text])[0], wanted)


def test_the_command_compares_readers_without_and_with_the_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, answers = towns(), tmp_path / "answers.jsonl"
    folder = write_dataset(tmp_path / "towns", data.queries, data.corpus)
    model = ["--model", save_tiny_model(tmp_path / "model"), "--rank", "2", "--longest", "30"]
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
