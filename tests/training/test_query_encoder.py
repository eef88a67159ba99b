"""The query encoder's loss, its batches, and its training from data to a model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from langchain_core.documents import Document
from safetensors.torch import load_file
from torch.nn.functional import normalize

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.hopfield.functional import sparsemax
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.patterns import Patterns
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.query.query_encoder import Differences, QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import Reading
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.training.data import EncodedData, EncodedExample, QueryItem, TrainingData, TrainingExample
from langgraph_convcoa.training.query_encoder import QueryEncoderLoss, QueryEncoderSettings, mixed_batches, train_query_encoder
from langgraph_convcoa.training.trainer import TrainingJob, TrainingSettings
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.tiny_bert import save_tiny_bert

pytest.importorskip("accelerate")

READING = Reading(tokens=24, turn_question=6, turn_answer=4)
CPU = TrainingJob(device="cpu")
THINGS = ("network", "book", "river", "memory")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_bert(tmp_path_factory.mktemp("tower") / "bert"))


def conversations() -> TrainingData:
    passages = tuple(Document(f"the {thing} is a {other}", id=f"{thing}-{other}") for thing in THINGS for other in THINGS)
    examples = tuple(
        TrainingExample(
            f"what is the {other}",
            ((f"who stores the {thing}", "a book"),),
            (f"{thing}-{other}",),
            f"what is the {thing} {other}" if thing == "book" else "",
            "talks",
        )
        for _ in range(3)
        for thing in THINGS
        for other in THINGS
    )
    return TrainingData(examples, passages)


def single_turn() -> Dataset:
    corpus = tuple(Document(id=thing, page_content=f"the {thing} is a thing", metadata={"title": thing}) for thing in THINGS)
    asked = [
        Query(f"{thing}{n}", f"when was the {thing} a {n}", gold=(thing,), answer="book") for thing in THINGS for n in THINGS
    ]
    return Dataset("things", tuple(asked), corpus)


def chosen(**training: float) -> QueryEncoderSettings:
    settings = {"steps": 6, "batch_size": 8, "learning_rate": 1e-3, "checkpoint_every": 2, **training}
    return QueryEncoderSettings(TrainingSettings(**settings), synthetic=30, reading=READING)  # type: ignore[arg-type]


@pytest.mark.parametrize("gate", [0.0, 2.0])
def test_the_loss_is_that_of_the_scores_that_retrieval_uses(base: str, gate: float) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(7, 32)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    memory = SimpleNamespace(patterns=Patterns(rows, np.array([0, 3, 5, 7])))
    asked = [EncodedExample(row, (), -1, ()) for row in range(2)]
    data = EncodedData(TrainingData((), ()), asked, texts=rows[4:6], memory=memory, states=rows[2:4])  # type: ignore[arg-type]
    items = [
        QueryItem((2, 5, 3), target=1),
        QueryItem((2, 6, 3), (0,), 0, (2,), state=0),
        QueryItem((2, 7, 3), (1, 2), 1, (0,), state=1),
    ]
    module = QueryEncoderModule.of(base, READING, device="cpu").eval()
    loss = QueryEncoderLoss(
        rows[:2], data, state_weight=0.5, gate=gate, distillation=2.0, contrast=0.0, scale=5.0, negatives=1
    )
    vectors = module([item.ids for item in items]).detach()
    distilled = 2 * (1 - float(vectors[0] @ torch.from_numpy(rows[1])))
    assert loss(module, items[:1]).item() == pytest.approx(distilled, abs=1e-5)
    assert loss(module, [QueryItem((2, 5, 3))]).item() == 0
    expected = []
    for vector, item in zip(vectors[1:], items[1:], strict=True):
        weight = (1 - float(vector @ torch.from_numpy(rows[4 + item.state]))) ** gate
        x = normalize(weight * vector + 0.5 * torch.from_numpy(data.states[item.state]), dim=-1)
        scores = []
        for start, stop in ((0, 3), (3, 5), (5, 7)):
            windows = torch.from_numpy(rows[start + 1 : stop])
            z = sparsemax((windows @ x)[None], beta=10.0)[0] @ windows
            scores.append(x @ torch.from_numpy(rows[start]) + z @ x)
        # Another set that is gold too is no negative.
        kept = [number for number in range(3) if number == item.positive or number not in item.gold]
        expected.append(-torch.log_softmax(5 * torch.stack([scores[number] for number in kept]), 0)[kept.index(item.positive)])
    found = loss(module, items)
    assert found.item() == pytest.approx(distilled + float(torch.stack(expected).mean()), abs=1e-4)
    found.backward()
    gradients = [p.grad for p in module.parameters() if p.requires_grad]
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
    assert all(p.grad is None for name, p in module.transformer.named_parameters() if name.startswith("embeddings."))


def test_batches_distil_first_and_mix_then() -> None:
    items = [QueryItem((1,) * (n % 5 + 1), target=n) for n in range(40)]
    items += [QueryItem((1,) * 3, (n,), n, state=n) for n in range(10)]
    batches, steps = mixed_batches(items, 8, distilled_first=0.5)
    epoch = batches(0, np.random.default_rng(3))
    assert epoch == batches(0, np.random.default_rng(3))
    assert len(epoch) == steps == 6
    assert sorted(number for batch in epoch for number in batch if number < 40) == list(range(40))
    real = [sum(number >= 40 for number in batch) for batch in epoch]
    assert real == [0, 0, 0, 0, 4, 4]
    short, steps = mixed_batches(items, 8, distilled_first=0.5, steps=4)
    real = [sum(number >= 40 for number in batch) for batch in short(0, np.random.default_rng(3))]
    assert ([count > 0 for count in real], steps) == ([False, False, True, True], 4)
    assert mixed_batches(items, 8, steps=100)[0](0, np.random.default_rng(3)) == epoch
    single = mixed_batches(items, 1, distilled_first=0)[0](0, np.random.default_rng(3))
    assert [[number >= 40 for number in batch] for batch in single] == [[False, True]] * 40
    only, steps = mixed_batches(items[:40], 8)
    assert sorted(number for batch in only(0, np.random.default_rng(3)) for number in batch) == list(range(40))
    assert steps == 5


def test_the_training_makes_a_model_that_retrieves_better(base: str, tmp_path: Path) -> None:
    data = conversations()
    encoder = SentenceTransformerEncoder(base, "cpu", dtype="float32")
    job = TrainingJob(tmp_path / "m", device="cpu", command="convcoa train talks things")
    train_query_encoder(data, single_turn=[single_turn()], encoder=encoder, settings=chosen(steps=80), job=job)
    loaded = RetrieverModel.load(tmp_path / "m")
    assert "convcoa train talks things" in loaded.card
    assert "| talks | 48 |\n| things | 16 |" in loaded.card

    def rank(model: RetrieverModel | str) -> float:
        retriever = HopfieldRetriever.from_documents(data.passages, encoder=encoder, model=model, lexical_weight=0)
        asked = data.examples[:16]
        hits = retriever.search_batch([one.question for one in asked], [one.history for one in asked], 16)
        return float(
            np.mean([1 / (1 + [i for i, _ in found].index(one.gold[0])) for found, one in zip(hits, asked, strict=True)])
        )

    assert rank(loaded) > rank("untrained") + 0.1
    assert [path.name for path in tmp_path.iterdir()] == ["m"], "what is done needs no checkpoint"


def test_a_stopped_training_goes_on_to_the_same_model(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceTransformerEncoder(base, "cpu", dtype="float32")
    arguments = {"single_turn": [single_turn()], "encoder": encoder, "settings": chosen()}
    train = partial(train_query_encoder, conversations(), **arguments)
    whole, parts = (TrainingJob(tmp_path / name, device="cpu") for name in ("whole", "parts"))
    train(job=whole)
    calls, original = [], QueryEncoderLoss.__call__

    def stopping(self: QueryEncoderLoss, *given: object) -> object:
        calls.append(given)
        if len(calls) == 4:
            raise OSError("the power fails")
        return original(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(QueryEncoderLoss, "__call__", stopping)
    with pytest.raises(OSError, match="power"):
        train(job=parts)
    train(job=replace(parts, resume=True))
    assert len(calls) == 8, "the checkpoint after two steps was gone on from"
    one, other = (load_file(Path(str(job.out)) / "question_tower.safetensors") for job in (whole, parts))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_training_goes_on_from_another_query_encoder(base: str) -> None:
    encoder = SentenceTransformerEncoder(base, "cpu", dtype="float32")
    arguments = {"single_turn": [single_turn()], "encoder": encoder, "job": CPU}
    model = train_query_encoder(None, settings=chosen(steps=20), **arguments)
    still = chosen(steps=1, learning_rate=1e-12, weight_decay=0.0)
    second = train_query_encoder(conversations(), settings=still, start=model, **arguments).query_encoder
    first = model.query_encoder
    assert first is not None
    assert second is not None
    talk = [(("who stores the network", "a book"),)]
    found, before = (query_encoder.encode(["what is the river"], talk) for query_encoder in (second, first))
    np.testing.assert_allclose(found, before, atol=1e-3)
    untrained = QueryEncoderModule.of(base, READING, device="cpu").eval()
    with torch.no_grad():
        plain = untrained(untrained.text.ids(["what is the river"], talk)).numpy()
    assert np.abs(before - plain).max() > 0.01


def test_what_cannot_be_trained_on(base: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--head"):
        train_query_encoder(conversations(), encoder=BagOfWords(), job=TrainingJob(tmp_path / "m"))
    with pytest.raises(InputError, match="nothing to train on"):
        train_query_encoder(None, encoder=base, job=TrainingJob(tmp_path / "m"))
    assert not (tmp_path / "m").exists()


def test_a_query_encoder_that_cannot_be_trained_further_is_told_before_training(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_convcoa.training.query_encoder.train", lambda *_, **__: pytest.fail("it was trained"))
    other = RetrieverModel(base, query_encoder=QueryEncoder(base, Differences({}, "another encoder's"), READING))
    with pytest.raises(RetrievalError, match="training cannot be continued"):
        train_query_encoder(conversations(), encoder=base, settings=chosen(), start=other, job=CPU)
    with pytest.raises(InputError, match="no query encoder to start from"):
        train_query_encoder(conversations(), encoder=base, settings=chosen(), start=RetrieverModel(base), job=CPU)
