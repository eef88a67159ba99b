from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from langgraph_convcoa.cli.app import app
from langgraph_convcoa.datasets.labelled_claims import LabelledClaim
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.training.verifier import VerifierSettings, train_verifier, training_rows
from langgraph_convcoa.verification.trained import as_verifier
from tests.retrieval.tiny_bert import save_tiny_encoder

pytest.importorskip("datasets")


def claims(count: int = 12) -> list[LabelledClaim]:
    """The network is in the first premise of each pair, the river in the other."""
    found = []
    for number in range(count):
        word = "network" if number % 2 else "river"
        evidence = (("", f"what is the {word} of the book"),)
        found.append(LabelledClaim("who was the network", evidence, bool(number % 2), "names"))
    return found


def test_rows_have_a_premise_and_a_label_and_some_premises_of_other_passages():
    rows = training_rows(claims(), VerifierSettings(others=1.0))
    assert {frozenset(row) for row in rows} == {frozenset({"premise", "claim", "label"})}
    assert [row["label"] for row in rows[:4]] == [0.0, 1.0, 0.0, 1.0]
    assert all(row["label"] == 0.0 and "river" in row["premise"] for row in rows[12:])
    assert rows == training_rows(claims(), VerifierSettings(others=1.0)), "the same seed draws the same rows"


@pytest.mark.slow
def test_a_trained_verifier_tells_the_claims_apart_and_a_stopped_training_is_resumed(tmp_path):
    base = str(save_tiny_encoder(tmp_path / "base"))
    settings = VerifierSettings(steps=100, batch_size=8, learning_rate=3e-3, save_every=50, others=0)
    verifier = train_verifier(claims(), tmp_path / "out", base=base, settings=settings, device="cpu", command="the command")
    true, false = as_verifier(verifier.name).support(
        ["who was the network"] * 2, ["what is the network of the book", "what is the river of the book"]
    )
    assert true > 0.7 > 0.3 > false
    card = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "6 true and 6 false claims (names 12)" in card
    assert "the command" in card
    with pytest.raises(InputError, match="resume it"):
        train_verifier(claims(), tmp_path / "out", base=base, settings=settings, device="cpu")
    longer = VerifierSettings(**(vars(settings) | {"steps": 102}))
    train_verifier(claims(), tmp_path / "out", base=base, settings=longer, device="cpu", resume=True)
    [state] = (tmp_path / "out" / "checkpoints").glob("*-102/trainer_state.json")
    assert json.loads(state.read_text())["log_history"][0]["step"] == 50, "what was done before is known"
    other = VerifierSettings(**(vars(settings) | {"seed": 5}))
    with pytest.raises(InputError, match="begun with another seed: 0"):
        train_verifier(claims(), tmp_path / "out", base=base, settings=other, device="cpu", resume=True)


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
    done = CliRunner().invoke(app, ["train-verifier", "--out", str(tmp_path / "x"), str(tmp_path / "missing.jsonl")])
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
