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
from experiments.graph_reader.token_graph import Relation, TokenGraph
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


def test_words_of_the_question_and_equal_names_of_two_pieces_are_linked() -> None:
    def words(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        places = [(text.index(word), text.index(word) + len(word)) for word in text.split()]
        return list(range(len(places))), places

    def linked(question: str, pieces: list[str], relation: Relation) -> set[tuple[str, str]]:
        written = " ".join([*pieces, question]).split()
        edges = TokenGraph.of(question, pieces, words).edges
        return {(written[edge.source], written[edge.target]) for edge in edges if edge.relation is relation}

    # "networks" has the stem of "network"; "the" is no content word.
    pieces = ["The networks store", "A network of Hopfield"]
    assert {("network", "networks"), ("networks", "network")} <= linked("Made the network", pieces, Relation.ASKED)
    names = linked("Why", ["Ada Lovelace wrote it", "it was by Ada Lovelace in 1843", "Ada Byron, 1843"], Relation.SAME_NAME)
    assert names == {("Ada", "Ada"), ("Lovelace", "Lovelace"), ("1843", "1843")}


def test_an_untrained_graph_changes_nothing_and_a_trained_one_changes_the_nodes_alone(tiny_model: str) -> None:
    model = GraphReaderModel.load(tiny_model, SMALL)
    text = model.text.text("Where is ada?", LIVES)
    before, _ = model.embeddings([text])
    plain = GraphReaderModel.load(tiny_model, ReaderSettings(graph=False, rank=2, longest=24)).embeddings([text])[0]
    assert torch.equal(before, plain)
    assert model.graph is not None
    torch.nn.init.normal_(model.graph.out.weight)
    changed = (model.embeddings([text])[0] != before).any(-1)[0]
    start, end = len(text.prefix), len(text.prefix) + text.graph.evidence
    assert bool(changed[start:end].all())
    assert not bool(changed[:start].any() or changed[end:].any())


def test_the_question_reaches_the_evidence_through_the_graph(tiny_model: str) -> None:
    """A causal model reads the evidence before the question; only the graph's links can bring it there."""
    model = GraphReaderModel.load(tiny_model, SMALL)
    assert model.graph is not None
    torch.nn.init.normal_(model.graph.out.weight)
    document = [Document("ada lives in rome.", id="a")]
    asked, other = (model.text.text(f"Where is {name}?", document) for name in ("ada", "bob"))
    assert asked.graph.tokens[: asked.graph.evidence] == other.graph.tokens[: other.graph.evidence]
    nodes = slice(len(asked.prefix), len(asked.prefix) + asked.graph.evidence)
    found, without = (model.embeddings([text])[0][0, nodes] for text in (asked, other))
    # Two layers: the word that is linked, and the one beside it.
    assert (found != without).any(-1).tolist() == [True, True, False, False, False, False]


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
