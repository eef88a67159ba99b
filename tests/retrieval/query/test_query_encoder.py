"""The query encoder: what it reads, its differences from the encoder, its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.query_encoder import Differences, QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import Reading
from tests.retrieval.tiny_bert import WORDS, save_tiny_bert

READING = Reading(tokens=16, turn_question=4, turn_answer=2)
QUESTIONS = ["what is the network", "who", "when was the book"]
HISTORIES = [[("who is a river", "the memory stores")], [], [("what", ""), ("", "a book")]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_bert(tmp_path_factory.mktemp("tower") / "bert"))


def trained(base: str, size: float = 0.05) -> QueryEncoderModule:
    module = QueryEncoderModule.of(base, READING, device="cpu").eval()
    generator = torch.Generator().manual_seed(1)
    for weight in module.learned().values():
        weight.add_(size * torch.randn(weight.shape, generator=generator))
    return module


def vectors(module: QueryEncoderModule) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    with torch.inference_mode():
        return np.concatenate([module([ids]).numpy() for ids in module.text.ids(QUESTIONS, HISTORIES)])


def words(ids: list[int]) -> str:
    return " ".join((["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])[number] for number in ids)


def test_the_question_is_read_first_and_then_the_newest_turn(base: str) -> None:
    text = QueryEncoderModule.of(base, READING, device="cpu").text
    history = [("who stores memory", "the river"), ("what is a book", "a network the")]
    (ids,) = text.ids(["when was the book"], [history])
    # The fifth word of a question and the third of an answer are one too many; the oldest turn has what is left.
    assert words(ids) == "[CLS] when was the book [SEP] what is a book a network [SEP] who stores [SEP]"
    (without,) = text.ids(["who"], [[]])
    assert words(without) == "[CLS] who [SEP]"


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.lists(st.sampled_from(WORDS), max_size=9), st.lists(st.sampled_from(WORDS), max_size=9)), max_size=6)
)
def test_as_many_tokens_as_there_is_room_for(base: str, turns: list[tuple[list[str], list[str]]]) -> None:
    text = _TEXTS.setdefault(base, QueryEncoderModule.of(base, READING, device="cpu").text)
    history = [(" ".join(question), " ".join(answer)) for question, answer in turns]
    (ids,) = text.ids(["what is the network"], [history])
    assert words(ids).startswith("[CLS] what is the network [SEP]")
    assert words(ids).endswith("[SEP]")
    needed = 6 + sum(min(4, len(question)) + min(2, len(answer)) + 1 for question, answer in turns if question or answer)
    assert len(ids) == min(needed, READING.tokens) or (needed > READING.tokens and len(ids) == READING.tokens - 1)


_TEXTS: dict[str, object] = {}


def test_special_tokens_in_a_question_are_words(base: str) -> None:
    text = QueryEncoderModule.of(base, READING, device="cpu").text
    (ids,) = text.ids(["who " * 40], [[("what", "a")]])
    assert len(ids) == READING.tokens, "a long question is cut, and ends as every text does"
    assert words(ids).endswith("who [SEP]")


def test_eight_bits_are_almost_the_trained_query_encoder(base: str, tmp_path: Path) -> None:
    module = trained(base)
    expected = vectors(module)
    rounded = QueryEncoder.of(module, base)
    found = rounded.encode(QUESTIONS, HISTORIES)
    assert ((found * expected).sum(axis=1) > 0.999).all()
    untrained = QueryEncoder(base, Differences({}, rounded.differences.base_hash), READING).encode(QUESTIONS, HISTORIES)
    assert ((untrained * expected).sum(axis=1) < 0.98).any(), "training changed something"
    rounded.save(tmp_path / "t.safetensors")
    reloaded = QueryEncoder.load(tmp_path / "t.safetensors")
    assert reloaded.reading == READING
    np.testing.assert_array_equal(reloaded.encode(QUESTIONS, HISTORIES), found)


def test_in_onnxruntime_it_gives_the_vectors_of_torch(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "saved"
    SentenceTransformerEncoder(base, device="cpu").model.save_pretrained(str(folder), create_model_card=False)
    trained_one = QueryEncoder.of(trained(str(folder)), str(folder))
    ours = QueryEncoder(str(folder), trained_one.differences, READING)
    found = ours.encode(QUESTIONS, HISTORIES)
    assert ours._module is None
    theirs = QueryEncoder(str(folder), trained_one.differences, READING)
    theirs.module()
    np.testing.assert_allclose(theirs.encode(QUESTIONS, HISTORIES), found, atol=2e-6)
    assert theirs._module is not None


def test_a_vector_does_not_depend_on_its_batch(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query_encoder = QueryEncoder.of(trained(base), base)
    together = query_encoder.encode(QUESTIONS, HISTORIES)
    monkeypatch.setattr("langgraph_convcoa.retrieval.query.query_encoder._BATCH", 1)
    np.testing.assert_allclose(query_encoder.encode(QUESTIONS, HISTORIES), together, atol=1e-5)


def test_embeddings_are_not_trained(base: str) -> None:
    module = QueryEncoderModule.of(base, READING, device="cpu")
    trainable = {name for name, parameter in module.transformer.named_parameters() if parameter.requires_grad}
    assert trainable
    assert all(name.startswith("encoder.layer.") for name in trainable)


def test_differences_of_another_encoder_are_refused(base: str, tmp_path: Path) -> None:
    query_encoder = QueryEncoder.of(trained(base), base)
    other = str(save_tiny_bert(tmp_path / "other", seed=5))
    with pytest.raises(RetrievalError, match="was trained from other weights"):
        QueryEncoder(other, query_encoder.differences, READING).encode(["who"], [[]])
    wide = str(save_tiny_bert(tmp_path / "wide", width=64))
    with pytest.raises(RetrievalError, match="not of one architecture"):
        QueryEncoder.of(trained(base), wide)


@pytest.mark.parametrize("damage", ["cut", "empty", "version", "head", "missing"])
def test_a_damaged_file_is_one_clear_line(base: str, tmp_path: Path, damage: str) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "t.safetensors"
    QueryEncoder.of(trained(base), base).save(path)
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "missing":
        path.unlink()
    else:
        head = {"format": "convcoa question tower", "version": "9" if damage == "version" else "1"}
        save_file({"a": torch.zeros(1)}, path, metadata=head)
    with pytest.raises(RetrievalError) as error:
        QueryEncoder.load(path)
    assert "t.safetensors" in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="tokens must be a whole number of at least 16"):
        Reading(tokens=3)
