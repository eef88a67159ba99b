"""The plain baseline, and the comparison of trainings with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from langchain_core.documents import Document
from rich.console import Console

from experiments.bench import training as module
from experiments.bench.__main__ import main
from experiments.bench.training import METHODS, training_cost
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.model import opened_model
from langgraph_convcoa.training.data import TrainingData, TrainingExample
from langgraph_convcoa.training.dual_encoder import (
    DualEncoder,
    DualLoss,
    DualQuestionSettings,
    reciprocal_rank_of_dual,
    train_dual_question,
)
from langgraph_convcoa.training.encoded import EncodedData, encode_examples, query_items
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.gradient_cache import backward
from langgraph_convcoa.training.loop.trainer import TrainingSettings
from tests.retrieval.tiny_bert import save_tiny_bert

pytest.importorskip("accelerate")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(str(save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny")), dtype="float32")


def data() -> TrainingData:
    things, ways = ("network", "book", "river", "memory"), ("stores", "when", "who")
    passages = tuple(
        Document(f"{way} is the {thing}. The {thing} was {way}.", id=f"{thing} {way}") for thing in things for way in ways
    )
    examples = tuple(
        TrainingExample(f"what was it {way}", ((f"what is a {thing}", "the"),), (f"{thing} {way}",), source="made")
        for thing, way in itertools.product(things, ways)
    )
    return TrainingData(examples, passages)


@pytest.fixture(scope="module")
def encoded(encoder: SentenceTransformerEncoder) -> EncodedData:
    return encode_examples(data(), encoder)


@pytest.mark.parametrize("both", [False, True])
def test_gradient_caching_gives_the_gradient_of_the_whole_batch(
    encoder: SentenceTransformerEncoder, encoded: EncodedData, both: bool
) -> None:
    plain, cached = (DualEncoder(encoder.model_name, both=both).double() for _ in range(2))
    # All negatives, since parts of a batch draw others.
    loss = DualLoss(encoded, negatives=99)
    items = query_items(plain.question.text, encoded)[:5]
    first, second = backward(plain, loss, items), backward(cached, loss, items, chunk=2)
    assert first == pytest.approx(second, rel=1e-6)
    learned = 0
    for (name, a), b in zip(plain.named_parameters(), cached.parameters(), strict=True):
        if a.grad is None:
            assert b.grad is None
            continue
        learned += name.startswith("passage.")
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-7)
    assert bool(learned) == both


def test_a_passage_is_one_vector_and_ranks_by_its_product(encoder: SentenceTransformerEncoder, encoded: EncodedData) -> None:
    dual = DualEncoder(encoder.model_name)
    items, loss = query_items(dual.question.text, encoded), DualLoss(encoded)
    with torch.no_grad():
        states = dual.question([item.ids for item in items]).numpy()
    whole = encoded.patterns.take(encoded.patterns.offsets[:-1])
    expected = []
    for state, item in zip(states, items, strict=True):
        ranked = np.argsort(-(whole @ state)).tolist()
        expected.append(1 / (1 + min(ranked.index(number) for number in item.gold)))
    assert reciprocal_rank_of_dual(dual, loss, items) == pytest.approx(np.mean(expected), abs=1e-6)
    # Untrained towers of one encoder: the passage tower's vectors are the stored ones.
    both = DualEncoder(encoder.model_name, both=True)
    assert reciprocal_rank_of_dual(both, loss, items) == pytest.approx(np.mean(expected), abs=1e-6)


def test_a_batch_has_each_passage_once_and_masks_those_that_are_gold(
    encoder: SentenceTransformerEncoder, encoded: EncodedData
) -> None:
    dual = DualEncoder(encoder.model_name)
    items, loss = query_items(dual.question.text, encoded)[:1], DualLoss(encoded, negatives=0)
    # The same question twice: its positive is no negative of its twin, so that there is nothing to tell apart.
    twins = [items[0], items[0]]
    assert loss.loss(dual, loss.represent(dual, twins), twins)["dpr"].item() == pytest.approx(0, abs=1e-6)


def test_a_question_encoder_is_trained_saved_and_measured(encoder: SentenceTransformerEncoder, tmp_path: Path) -> None:
    settings = DualQuestionSettings(TrainingSettings(steps=12, batch_size=6, learning_rate=1e-3))
    train_dual_question(data(), encoder=encoder, settings=settings, job=TrainingJob(tmp_path / "dual", command="made"))
    assert "a query encoder" in (tmp_path / "dual" / "README.md").read_text()
    asked = tuple(Query(str(n), one.question, one.history, one.gold) for n, one in enumerate(data().examples))
    dataset = Dataset("made", asked, data().passages)
    question_encoder = opened_model(tmp_path / "dual").query_encoder
    passages = encoder.encode_passages([passage.page_content for passage in data().passages])
    ids = [str(passage.id) for passage in data().passages]

    def dual(queries: Sequence[Query]) -> list[list[str]]:
        states = question_encoder.encode([query.question for query in queries], [query.history for query in queries])
        return [[ids[row] for row in np.argsort(-(passages @ state))] for state in states]

    report = evaluate_retrieval(dataset, methods=["history", "dual"], encoder=encoder, further={"dual": dual})
    found = {name: result.metrics["MRR"] for name, result in report.methods.items()}
    assert found["dual"] > found["history"] + 0.1


@pytest.mark.slow
def test_every_training_is_measured_on_the_way_and_learns(encoder: SentenceTransformerEncoder) -> None:
    report = training_cost(data(), data(), methods=METHODS, encoder=encoder, steps=30, batch_size=6, evaluations=3)
    assert list(report.methods) == list(METHODS)
    assert (report.examples, report.questions, report.passages) == (12, 12, 12)
    for cost in report.methods.values():
        assert [step for step, *_ in cost.evaluations] == [10, 20, 30]
        assert cost.best > cost.start
        assert cost.best == max(score for *_, score in cost.evaluations)
        assert cost.seconds > 0
    assert report.target == min(cost.best for cost in report.methods.values())
    assert all(0 <= cost.to_target <= cost.seconds for cost in report.methods.values())
    assert report.methods["dual"].parameters > report.methods["dual-question"].parameters
    assert json.loads(json.dumps(report.to_dict()))["methods"]["head"]["best"] == report.methods["head"].best
    console = Console(width=140)
    with console.capture() as shown:
        console.print(report)
    assert "query-encoder" in shown.get()


def test_what_cannot_be_compared_is_told() -> None:
    with pytest.raises(InputError, match="Unknown training 'colbert'; known: head, query-encoder"):
        training_cost(data(), data(), methods=["colbert"])
    with pytest.raises(InputError, match="evaluations must be from 1 to the number of steps, 5, not 9"):
        training_cost(data(), data(), steps=5, evaluations=9)


def test_the_command_prints_the_table_as_json(
    encoder: SentenceTransformerEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    corpus = [{"id": passage.id, "title": "", "text": passage.page_content} for passage in data().passages]
    queries = [
        {
            "id": str(number), "conversation_id": str(number), "question": example.question,
            "history": [list(turn) for turn in example.history], "gold": list(example.gold),
            "split": ("train", "dev")[number % 2],
        }
        for number, example in enumerate(data().examples)
    ]  # fmt: skip
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(module, "as_encoder", lambda _encoder: encoder)
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path / "cache"))
    main(["training", str(folder), *["--methods", "head", "--steps", "4", "--batch", "3", "--evaluations", "2", "--json"]])
    report = json.loads(capsys.readouterr().out)
    assert (report["examples"], report["questions"], report["steps"]) == (6, 6, 4)
    assert [step for step, *_ in report["methods"]["head"]["evaluations"]] == [2, 4]
