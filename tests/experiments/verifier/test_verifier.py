from __future__ import annotations

import json
import random

import pytest

from experiments.verifier.__main__ import Pair, Settings, export, question_pairs, train
from experiments.verifier.synthetic import from_sentences, statement
from langgraph_convcoa.verification.trained import TrainedVerifier
from tests.retrieval.tiny_bert import save_tiny_encoder

PASSAGE = (
    "Bridge",
    "The bridge was built by Ada Park in 1894. In 1907, the old bridge fell after the great storm of Mr Hill.",
)


def test_sentences_are_changed_in_one_thing_or_in_form():
    made = [row for seed in range(20) for row in from_sentences(PASSAGE, random.Random(seed))]
    assert ("Ada Park built the bridge.", 1, "active") in [(claim, label, kind) for claim, _, label, kind in made]
    assert {"number", "antonym", "active-swap", "edit"} <= {kind for *_, kind in made}
    assert all(claim != PASSAGE[1] for claim, _, label, _ in made if not label)


@pytest.mark.parametrize(
    ("question", "answer", "claim"),
    [("Who built the bridge?", "Ada Park", "Ada Park built the bridge."), ("Why?", "a storm", "")],
)
def test_a_question_and_its_answer_become_a_claim(question, answer, claim):
    found = {statement(question, answer, random.Random(seed)) for seed in range(9)}
    assert claim in found or not claim
    assert all(answer.casefold() in one.casefold() for one in found)


def test_a_short_training_writes_a_verifier(tmp_path):
    base = str(save_tiny_encoder(tmp_path / "base"))
    data = tmp_path / "data"
    data.mkdir()
    (data / "corpus.jsonl").write_text(json.dumps({"id": "p", "title": PASSAGE[0], "text": PASSAGE[1]}))
    row = {"id": "1", "question": "Who built the bridge?", "answer": "Ada Park", "gold": ["p"], "split": "train"}
    (data / "queries.jsonl").write_text(json.dumps(row))
    made = question_pairs(data)
    assert {pair.label for pair in made} == {0.0, 1.0}
    learned = [Pair("who was the network", "the network", 1.0), Pair("who was the river", "the network", 0.0)]
    settings = Settings(seconds=2, batch_size=4, save_every=2)
    assert [step for step, _ in train(learned, made, tmp_path / "out", settings, base)][:3] == [1, 2, 3]
    verifier = TrainedVerifier(export(tmp_path / "out", 0.3, base))
    assert verifier.threshold == 0.3
    assert 0 < verifier.support(["who was the network"], ["the network"])[0] < 1
