"""The head: what it starts as, what it becomes in the retriever, what it learns and how it goes on after a stop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.query.conversation_state import conversational_state
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.training.data import TrainingData, TrainingExample, encode_examples
from langgraph_convcoa.training.head import HeadSettings, HopfieldHead, train_head
from langgraph_convcoa.training.trainer import TrainingJob, TrainingSettings
from tests.fake_encoder import DIMENSION, WordEncoder

pytest.importorskip("accelerate")


class FakeEncoder(WordEncoder):
    """Counts of words, in 48 numbers."""

    dimension = 48

    def _encode(self, texts: Sequence[str]) -> Vectors:
        mixed = super()._encode(texts) @ np.random.default_rng(0).normal(size=(DIMENSION, 48)).astype(np.float32)
        lengths = np.linalg.norm(mixed, axis=1, keepdims=True)
        return np.divide(mixed, lengths, out=mixed, where=lengths > 0)


CPU = TrainingJob(device="cpu")
TOPICS = ("bees", "ships", "tea", "chess", "snow", "glass", "maps", "rice")
ASPECTS = ("origin", "price", "colour", "danger")


def data(topics: tuple[str, ...] = TOPICS) -> TrainingData:
    """The turn before a question names its topic; the question names the aspect, and another topic to mislead."""
    passages = tuple(
        Document(f"{topic} {aspect} is this. More of {topic} {aspect} follows here.", id=f"{topic}-{aspect}")
        for topic, aspect in itertools.product(TOPICS, ASPECTS)
    )
    examples = [
        TrainingExample(
            question=f"and the {aspect}, unlike {TOPICS[(TOPICS.index(topic) + 1) % 6]}?",
            history=((f"tell me of {topic}", f"{topic} it is"),),
            gold=(f"{topic}-{aspect}",),
            rewrite=f"{topic} {aspect}" if aspect == "price" else "",
            source="made",
        )
        for topic, aspect in itertools.product(topics, ASPECTS)
    ]
    return TrainingData(tuple(examples), passages)


def small(**changes: object) -> HeadSettings:
    training = TrainingSettings(epochs=15, batch_size=8, learning_rate=3e-3, checkpoint_every=5)
    return replace(HeadSettings(training=training, identity=1e-3, share=1.0), **changes)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 4), st.integers(0, 999), st.floats(0.1, 3), st.floats(0.1, 30))
def test_the_states_in_training_are_those_in_retrieval(turns: int, seed: int, weight: float, beta: float) -> None:
    random = np.random.default_rng(seed)
    head = HopfieldHead(5)
    torch.nn.init.constant_(head.log_history_weight, math.log(weight))
    torch.nn.init.constant_(head.log_history_beta, math.log(beta))
    x, history = random.normal(size=5).astype(np.float32), random.normal(size=(turns, 5)).astype(np.float32)
    padded = np.full((1, 6, 5), 1e3, dtype=np.float32)
    padded[0, :turns] = history
    mask = torch.arange(6).unsqueeze(0) < turns
    inputs = torch.from_numpy(x[None]), torch.from_numpy(padded), mask
    start = head.states(*inputs).detach().numpy()[0]
    x_alone = x / np.linalg.norm(x)
    expected = conversational_state(x, history, weight, beta) if turns else x_alone
    np.testing.assert_allclose(start, expected, atol=2e-6)
    with torch.no_grad():
        for parameter in (head.direct, head.association, head.history, head.gate):
            parameter.add_(torch.from_numpy(random.normal(scale=0.3, size=tuple(parameter.shape)).astype(np.float32)))
    model = head.model(FakeEncoder())
    assert model.state is not None
    trained = model.state.state(x, history, model.settings["history_weight"], model.settings["history_beta"])
    np.testing.assert_allclose(head.states(*inputs).detach().numpy()[0], trained, atol=1e-5)


def test_training_ranks_new_conversations_better_and_the_saved_model_does_so_in_the_retriever(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    learned, new = data(TOPICS[:6]), data(TOPICS[6:])
    model = train_head(learned, encoder=encoder, settings=small(), job=TrainingJob(tmp_path / "model", device="cpu"))
    loaded = RetrieverModel.load(tmp_path / "model")

    def found(model: RetrieverModel | str) -> list[str]:
        retriever = HopfieldRetriever.from_documents(learned.passages, encoder=encoder, model=model, lexical_weight=0)
        hits = retriever.search_batch([e.question for e in new.examples], [e.history for e in new.examples], 1)
        return [ids[0][0] for ids in hits]

    right = [example.gold[0] for example in new.examples]
    untrained = sum(a == b for a, b in zip(found("untrained"), right, strict=True))
    trained = sum(a == b for a, b in zip(found(loaded), right, strict=True))
    assert found(model) == found(loaded)
    assert trained > untrained
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "what is done needs no checkpoint"


def test_hard_negatives_are_the_best_of_the_untrained_retriever_and_never_gold() -> None:
    encoder, examples = FakeEncoder(), data()
    found = encode_examples(examples, encoder)
    ids = [str(passage.id) for passage in found.memory.passages]
    retriever = HopfieldRetriever.from_documents(
        examples.passages, encoder=encoder, model="untrained", lexical_weight=0, k=len(ids)
    )
    for example, item in zip(examples.examples[:8], found.examples[:8], strict=True):
        ranked = [identity for identity, _ in retriever.search_batch([example.question], [example.history])[0]]
        assert [ids[number] for number in item.hard] == [name for name in ranked if name not in example.gold][:20]
        assert (ids[item.positive],) == example.gold == tuple(ids[number] for number in item.gold)
        assert (item.rewrite >= 0) == bool(example.rewrite)


def test_a_copy_of_what_answers_is_gold_too_and_never_a_negative() -> None:
    examples = data()
    gold = examples.examples[0].gold[0]
    (text,) = (passage.page_content for passage in examples.passages if passage.id == gold)
    encoded = encode_examples(
        replace(examples, passages=(*examples.passages, Document(text, id="copy"))), FakeEncoder()
    ).examples
    copy = len(examples.passages)
    assert [number for number, item in enumerate(encoded) if copy in item.gold] == [0]
    assert copy not in encoded[0].hard
    assert any(copy in item.hard for item in encoded[1:])


def test_a_share_of_the_way_is_between_the_untrained_and_the_trained_head() -> None:
    encoder = FakeEncoder()
    whole, half = (train_head(data(), encoder=encoder, settings=small(share=share), job=CPU) for share in (1.0, 0.5))
    assert whole.state is not None
    assert half.state is not None
    np.testing.assert_allclose(half.state.direct, (whole.state.direct + np.eye(48)) / 2, atol=1e-6)
    np.testing.assert_allclose(half.state.gate, whole.state.gate / 2, atol=1e-6)
    weights = [model.settings["history_weight"] for model in (whole, half)]
    assert weights[1] == pytest.approx((0.6 * weights[0]) ** 0.5, rel=1e-5)
    with pytest.raises(InputError, match="share must be above 0 and at most 1, not 0"):
        HeadSettings(share=0)
