"""Training of a graph reader: its examples, resuming, and that the graph is learned from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.reasoning.graph_reader.model import ReaderSettings
from langgraph_convcoa.reasoning.graph_reader.storage import load_reader, trained_weights
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings
from langgraph_convcoa.training.reader import ReaderTraining, reader_examples, train_reader
from tests.reasoning.graph_reader.tiny import save_tiny_model, towns

pytest.importorskip("accelerate")
pytest.importorskip("torch_geometric")
pytest.importorskip("peft")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("reader") / "model")


def settings(steps: int, **reader: object) -> ReaderTraining:
    training = TrainingSettings(batch_size=2, steps=steps, learning_rate=1e-3, checkpoint_every=2)
    return ReaderTraining(training, replace(ReaderSettings(rank=2, longest=30, lora_dropout=0.1), **reader))  # type: ignore[arg-type]


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


def test_a_training_that_was_stopped_and_resumed_ends_with_the_same_weights(tiny_model: str, tmp_path: Path) -> None:
    examples = reader_examples(towns())[:8]
    whole = train_reader(examples, tiny_model, settings=settings(4), job=TrainingJob(device="cpu"))

    def stop(done: int, _total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    out = tmp_path / "reader"
    with pytest.raises(KeyboardInterrupt):
        train_reader(examples, tiny_model, settings=settings(4), job=TrainingJob(out, device="cpu", progress=stop))
    with pytest.raises(InputError, match="--resume"):
        train_reader(examples, tiny_model, settings=settings(4), job=TrainingJob(out, device="cpu"))
    with pytest.raises(InputError, match="was started with"):
        train_reader(examples[1:], tiny_model, settings=settings(4), job=TrainingJob(out, resume=True, device="cpu"))
    train_reader(examples, tiny_model, settings=settings(4), job=TrainingJob(out, resume=True, device="cpu"))
    found = trained_weights(load_reader(out))
    assert found.keys() == trained_weights(whole).keys()
    assert all(torch.equal(weight, found[name]) for name, weight in trained_weights(whole).items())
    assert [path.name for path in tmp_path.iterdir()] == ["reader"]


def test_what_cannot_be_trained_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    examples = reader_examples(towns())
    with pytest.raises(ModelError, match="holds other files"):
        train_reader(examples, "no/such-model", job=TrainingJob(tmp_path / "full"))
    with pytest.raises(ModelError, match=r"'no/such-model' cannot be loaded"):
        train_reader(examples, "no/such-model", job=TrainingJob(tmp_path / "reader"))
