"""The network of the graph reader: its inputs, the effect of the graph, and the loss."""

from __future__ import annotations

import pytest
import torch
from langchain_core.documents import Document

from experiments.graph_reader.model import GraphReaderModel, ReaderSettings
from tests.experiments.graph_reader.tiny import save_tiny_model

SMALL = ReaderSettings(rank=2, longest=24)
LIVES = [Document("ada lives in rome. bob and ada.", id="a"), Document("bob lives in oslo.", id="b")]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("reader") / "model")


@pytest.fixture(scope="module")
def model(tiny_model: str) -> GraphReaderModel:
    return GraphReaderModel.load(tiny_model, SMALL)


def read_back(model: GraphReaderModel, tokens: tuple[int, ...]) -> str:
    return str(model.text.tokenizer.decode(tokens))


def test_the_nodes_stand_between_prefix_and_suffix(model: GraphReaderModel) -> None:
    text = model.text.text("Where is ada?", LIVES[1:], [("Who lives in rome?", "ada")], answer="oslo")
    evidence = text.graph.tokens[: text.graph.evidence]
    parts = [read_back(model, part) for part in (text.prefix, evidence, text.suffix, text.answer)]
    assert parts == [
        "Facts:\n",
        "bob lives in oslo.\n",
        "Question: Who lives in rome?\nAnswer: ada\nQuestion: Where is ada?\nAnswer:",
        " oslo<end>",
    ]
    states, mask = model.embeddings([text])
    assert states.shape == (1, len(text), 32)
    assert bool(mask.all())


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


def test_a_batch_of_texts_gives_what_each_alone_does(model: GraphReaderModel) -> None:
    texts = [model.text.text("Where is ada?", LIVES, answer="rome"), model.text.text("Who?", [], answer="bob and ada")]
    together = model.losses(texts)
    alone = torch.cat([model.losses([text]) for text in texts])
    torch.testing.assert_close(together, alone)
    asked = [model.text.text("Where is ada?", LIVES), model.text.text("Who?", [])]
    assert model.answers(asked, longest=4) == [answer for text in asked for answer in model.answers([text], longest=4)]
    assert model.answers([]) == []


def test_only_the_answer_has_a_loss(model: GraphReaderModel) -> None:
    """The mean of -log p of the answer's tokens, computed from the logits at their places."""
    text = model.text.text("Where is ada?", LIVES, answer="rome")
    inputs, mask = model.embeddings([text])
    logits = model.language_model(inputs_embeds=inputs, attention_mask=mask).logits[0]
    places = range(len(text) - len(text.answer) - 1, len(text) - 1)
    wanted = -sum(logits[place].log_softmax(-1)[token] for place, token in zip(places, text.answer, strict=True)) / 2
    torch.testing.assert_close(model.losses([text])[0], wanted)


def test_very_long_evidence_is_cut_to_its_best_sentences(model: GraphReaderModel) -> None:
    long = [Document(" ".join(["bob lives in oslo and cairo."] * 400), id="l"), *LIVES]
    many = [Document(f"{name} lives in paris.", id=str(n)) for n, name in enumerate(["dan", "eve", "finn"] * 100)]
    for documents in (long, many + LIVES):
        text = model.text.text("Where is ada?", documents)
        assert 0 < text.graph.evidence <= SMALL.longest
        assert "ada lives in rome." in read_back(model, text.graph.tokens[: text.graph.evidence])
    held = model.text.text("Where is ada?", many, holds="finn lives")
    assert "finn" in read_back(model, held.graph.tokens[: held.graph.evidence])
