from __future__ import annotations

import random

import pytest
from langchain_core.documents import Document

from experiments.verifier.__main__ import passage_pairs, question_pairs, with_pronouns
from experiments.verifier.synthetic import from_article, from_sentences, statement, with_pronoun
from langgraph_convcoa.datasets.labelled_claims import LabelledClaim
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.training.verifier import VerifierSettings, train_verifier
from tests.data import write_dataset
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


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("The bridge was built by Ada Park.", "It was built by Ada Park."),
        ("The tower was built by Ada Park.", "The tower was built by Ada Park."),
    ],
)
def test_a_pronoun_stands_for_a_subject_that_the_premise_names(claim, changed):
    assert with_pronoun(claim, PASSAGE[1], random.Random(0)) == changed


def test_sentences_of_other_passages_of_an_article_are_near_and_not_said():
    other = "The tower fell in the year of the great fire. A new school opened near the river in 1950. The city grew fast."
    made = [row for seed in range(9) for row in from_article(PASSAGE, [other], random.Random(seed))]
    assert {(kind, label) for *_, label, kind in made} >= {("copy", 1), ("near", 0)}
    assert all(claim in PASSAGE[1] for claim, _, _, kind in made if kind == "copy")


def test_a_short_training_writes_a_verifier(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    base = str(save_tiny_encoder(tmp_path / "base"))
    query = Query("1", "Who built the bridge?", answer="Ada Park", gold=("p",), split="train")
    data = write_dataset(tmp_path / "data", [query], [Document(PASSAGE[1], id="p", metadata={"title": PASSAGE[0]})])
    claims = [
        LabelledClaim(claim, (PASSAGE,), label, "roles")
        for claim, label in (("Ada built it.", True), ("It built Ada.", False))
    ]
    made = [*question_pairs(data), *passage_pairs(claims)]
    assert {pair.label for pair in made} == {0.0, 1.0}
    settings = VerifierSettings(steps=2, batch_size=4)
    verifier = train_verifier(with_pronouns(claims), tmp_path / "out", made=made, settings=settings, base=base, device="cpu")
    assert 0 < verifier.support(["who was the network"], ["the network"])[0] < 1
