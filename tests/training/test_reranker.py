"""Training of a reranker with a tiny encoder: what it learns, how it resumes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from langchain_core.documents import Document
from safetensors.torch import load_file

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.training import reranker as module
from langgraph_convcoa.training.data import TrainingData, TrainingExample
from langgraph_convcoa.training.trainer import TrainingJob, TrainingSettings
from tests.retrieval.tiny_bert import save_tiny_encoder

pytest.importorskip("accelerate")

THINGS = ("network", "book", "river", "memory")
SHORT = TrainingSettings(steps=4, batch_size=2, learning_rate=1e-2, checkpoint_every=2)
PASSAGES = tuple(Document(id=thing, page_content=thing) for thing in THINGS)
QUESTIONS = tuple(
    TrainingExample(f"{word} was the {thing}", (("who was", "a hopfield"),) * (word == "when"), (thing,), source="talks")
    for thing in THINGS
    for word in ("what", "who", "when")
)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    base = save_tiny_encoder(tmp_path_factory.mktemp("base") / "bert")
    encoder = SentenceTransformerEncoder(str(base), "cpu", dtype="float32")

    def trained(out, training=SHORT, data=TrainingData(QUESTIONS, PASSAGES), layers=(1,), start=None, resume=False):  # noqa: B008
        job, settings = (
            TrainingJob(out, resume, "cpu", command="the command"),
            module.RerankerSettings(training, layers=layers),
        )
        return module.train_reranker(data, job=job, encoder=encoder, settings=settings, start=start)

    trained.encoder = encoder
    return trained


@pytest.mark.slow
def test_it_ranks_the_gold_passage_of_its_own_questions_first(tmp_path, train):
    reranker = train(tmp_path / "out", replace(SHORT, steps=100, batch_size=8), layers=(0, 1))
    retriever = HopfieldRetriever.from_texts(
        THINGS, ids=THINGS, encoder=train.encoder, reranker=str(reranker.path), graph=None, rerank=12
    )
    for one in QUESTIONS[::3]:
        logits = reranker.logits(one.question, THINGS)
        assert THINGS[logits.index(max(logits))] == one.gold[0], logits
        assert retriever.invoke(one.question)[0].id == one.gold[0]
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(
        part in card for part in ("- Questions: talks 12.", "layers [0, 1]", "`the command`", f"Weight: {reranker.weight}")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "the checkpoints are gone"
    more = train(tmp_path / "more", replace(SHORT, steps=1, learning_rate=1e-9), start=reranker.path)
    assert more.logits("who was the book", THINGS) == pytest.approx(reranker.logits("who was the book", THINGS), abs=0.05)


def test_a_stopped_training_is_resumed_to_the_same_weights(tmp_path, train, monkeypatch):
    whole = train(tmp_path / "whole")
    calls, original = [], module.reranker_loss

    def stopping(*given):
        calls.append(given)
        if len(calls) == 4:
            raise OSError("the power fails")
        return original(*given)

    monkeypatch.setattr(module, "reranker_loss", stopping)
    with pytest.raises(OSError, match="power"):
        train(tmp_path / "parts")
    with pytest.raises(InputError, match="unfinished training"):
        train(tmp_path / "parts")
    parts = train(tmp_path / "parts", resume=True)
    assert len(calls) == 6, "it goes on from the checkpoint after two steps"
    one, other = (load_file(reranker.path) for reranker in (whole, parts))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_wrong_passages_near_the_top_are_drawn_more_often():
    question = module.RankedQuestion("q", [str(n) for n in range(31)], [1.0] * 31, [n in (2, 9) for n in range(31)])
    groups = [list(map(int, passages)) for _, passages in module.draw_groups([question], 400, seed=1)]
    assert {first for first, *_ in groups} == {2, 9}
    wrong = [number for _, *others in groups for number in others]
    assert not {2, 9} & set(wrong)
    assert sum(number < 10 for number in wrong) > sum(number > 20 for number in wrong)


def test_what_cannot_be_trained_is_one_line(tmp_path, train):
    for data in (TrainingData((TrainingExample("who"),), PASSAGES), TrainingData(QUESTIONS[:1], PASSAGES[:1])):
        with pytest.raises(InputError, match="no question with a gold passage and a wrong one"):
            train(tmp_path / "new", data=data)
    with pytest.raises(RetrievalError, match="holds other files"):
        (tmp_path / "full" / "folder").mkdir(parents=True)
        train(tmp_path / "full")
    with pytest.raises(InputError, match="layers must be numbers from 0 to 1"):
        train(tmp_path / "new", layers=(0, 2))
    with pytest.raises(RetrievalError, match="other weights"):
        train(tmp_path / "new", start="verifier")
