from __future__ import annotations

import json
from dataclasses import replace

import pytest

from langgraph_convcoa.datasets.labelled_claims import LabelledClaim
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.training.verifier import DrawnPairs, VerifierSettings, claim_pairs, train_verifier, with_distractors
from langgraph_convcoa.verification.trained import as_verifier
from tests.cli.commands import convcoa
from tests.retrieval.tiny_bert import save_tiny_encoder

pytest.importorskip("accelerate")


def claims(count: int = 12) -> list[LabelledClaim]:
    """The network is in the first premise of each pair, the river in the other."""
    found = []
    for number in range(count):
        word = "network" if number % 2 else "river"
        evidence = (("", f"what is the {word} of the book"),)
        found.append(LabelledClaim("who was the network", evidence, bool(number % 2), "names"))
    return found


def rows_of(settings: VerifierSettings, tokenizer) -> list[tuple]:
    pairs = DrawnPairs(claim_pairs(claims(), 50), [], tokenizer, settings)
    return [(tuple(row["ids"]), row["label"]) for row in pairs]


def test_the_same_seed_draws_the_same_pairs_and_some_true_claims_get_another_premise(tmp_path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(save_tiny_encoder(tmp_path) / "tokenizer.json"))
    tokenizer.no_padding()
    settings = VerifierSettings(steps=32, batch_size=4, others=(0.0, 0.0))
    rows = rows_of(settings, tokenizer)
    assert len(rows) == 128
    assert rows == rows_of(settings, tokenizer)
    assert rows != rows_of(replace(settings, seed=1), tokenizer)
    assert 0.3 < sum(label for _, label in rows) / len(rows) < 0.7
    assert not any(label for _, label in rows_of(replace(settings, others=(1.0, 1.0)), tokenizer))


@pytest.mark.slow
def test_a_trained_verifier_tells_the_claims_apart_and_a_stopped_training_is_resumed(tmp_path):
    base = str(save_tiny_encoder(tmp_path / "base"))
    settings = VerifierSettings(steps=112, batch_size=8, learning_rate=3e-3, save_every=50, others=(0.0, 0.0), distractors=0)
    arguments = {"base": base, "device": "cpu"}
    verifier = train_verifier(claims(), tmp_path / "out", settings=settings, command="the command", **arguments)
    pairs = ["who was the network"] * 2, ["what is the network of the book", "what is the river of the book"]
    true, false = as_verifier(str(verifier.path)).support(*pairs)
    assert true > 0.7 > 0.3 > false
    assert true > verifier.threshold > false
    card = (tmp_path / "out" / "README.md").read_text()
    assert "6 true and 6 false claims (names 12)" in card
    assert "the command" in card
    with pytest.raises(InputError, match="resume it"):
        train_verifier(claims(), tmp_path / "out", settings=settings, **arguments)
    train_verifier(claims(), tmp_path / "out", settings=replace(settings, steps=114), resume=True, **arguments)
    [state] = (tmp_path / "out" / "checkpoints").glob("*-114/trainer_state.json")
    assert json.loads(state.read_text())["log_history"][0]["step"] == 50, "what was done before is known"
    with pytest.raises(InputError, match="begun with another seed: 0"):
        train_verifier(claims(), tmp_path / "out", settings=replace(settings, seed=5), resume=True, **arguments)
    more = train_verifier(
        claims(), tmp_path / "more", start=verifier.path, settings=replace(settings, steps=1, learning_rate=1e-9), **arguments
    )
    assert more.support(*pairs) == pytest.approx([true, false], abs=0.02), "it goes on from the verifier"


def test_what_cannot_be_trained_is_one_line(tmp_path):
    with pytest.raises(InputError, match="only one of them"):
        train_verifier(claims()[:1], tmp_path / "out")
    with pytest.raises(InputError, match="above 0"):
        train_verifier(claims(), tmp_path / "out", settings=VerifierSettings(learning_rate=0))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="holds other files"):
        train_verifier(claims(), tmp_path / "full")
    with pytest.raises(RetrievalError, match="cannot be loaded"):
        train_verifier(claims(), tmp_path / "new", base=str(tmp_path / "missing"))
    done = convcoa("train-verifier", "--out", tmp_path / "x", tmp_path / "missing.jsonl", code=2)
    assert "Traceback" not in done.stderr


def test_claims_with_passages_of_others_keep_their_own_and_their_label() -> None:
    claims = [
        LabelledClaim(f"{day} was {word}.", (("", f"It rained on {day}."),), word == "wet", word)
        for day in ("Monday", "Tuesday", "Friday")
        for word in ("wet", "dry")
    ]
    mixed = with_distractors(claims, 2, seed=3)
    assert [(one.claim, one.supported, one.kind) for one in mixed] == [(one.claim, one.supported, one.kind) for one in claims]
    assert all(
        one.evidence[0] in more.evidence and len(set(more.evidence)) == 3 for one, more in zip(claims, mixed, strict=True)
    )
    assert mixed[0].evidence == mixed[1].evidence, "the claims of a passage share them"
    assert with_distractors(claims[:1], 2) == claims[:1], "there are no others"
