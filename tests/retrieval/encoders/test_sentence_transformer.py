from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from tests.retrieval.tiny_bert import save_tiny_bert

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def minilm():
    return SentenceTransformerEncoder(batch_size=4, dtype="float32")


def test_vectors_of_the_packaged_model_in_the_order_given(minilm, capfd):
    texts = [
        "short",
        "A much longer sentence about the Hopfield network and what it stores.",
        "tiny",
        "middle of the road",
        "z",
    ]
    rows = minilm.encode_passages(texts)
    assert minilm.dimension == 384
    assert rows.shape == (5, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(minilm.encode_queries([text])[0], row, atol=1e-5)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_meaning_counts(minilm):
    question, near, far = minilm.encode_queries(
        ["Who wrote the book?", "The author of the novel is Ada.", "Rain fell on the hills."]
    )
    assert question @ near > question @ far + 0.2


def test_tokens_are_counted_without_truncation_and_with_the_special_ones(minilm):
    assert minilm.max_tokens == 256
    assert minilm.count_tokens("") == 2
    assert minilm.count_tokens_batch(["hello world", "word " * 1000]) == [4, 1002]
    assert minilm.encode_queries(["word " * 20_000]).shape == (1, 384)


def test_counting_leaves_encoding_alone_between_threads(minilm):
    expected = minilm.encode_queries(["one text", "another text"])

    def work(_number: int) -> None:
        for _ in range(5):
            np.testing.assert_allclose(minilm.encode_queries(["one text", "another text"]), expected, atol=1e-5)
            assert minilm.count_tokens("word " * 600) == 602

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(work, range(4)))) == 4


def test_a_folder_is_named_by_what_is_in_it(tmp_path, minilm):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = SentenceTransformerEncoder(str(tmp_path))._identity()
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert SentenceTransformerEncoder(str(tmp_path))._identity() != first


def test_a_model_that_is_not_there_says_what_to_do(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RetrievalError, match=r'pip install "langgraph-convcoa\[offline\]" or give an encoder') as caught:
        SentenceTransformerEncoder(str(tmp_path)).encode_queries(["a"])
    assert "\n" not in str(caught.value)


def test_a_hub_name_without_a_hub_says_what_to_do():
    with pytest.raises(RetrievalError, match="give an encoder"):
        SentenceTransformerEncoder("no-such-owner/no-such-model").encode_queries(["a"])


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"dtype": "int4"}], ids=lambda s: next(iter(s)))
def test_bad_settings(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        SentenceTransformerEncoder(**settings)


def test_a_saved_encoder_gives_the_same_vectors(tmp_path):
    checkpoint = save_tiny_bert(tmp_path / "bert")
    encoder = SentenceTransformerEncoder(str(checkpoint), dtype="float32")
    expected = encoder.encode_passages(["what is a network", "who"])
    encoder.model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    again = SentenceTransformerEncoder(str(tmp_path / "saved"), dtype="float32")
    np.testing.assert_allclose(again.encode_passages(["what is a network", "who"]), expected, atol=1e-6)
    with pytest.raises(InputError, match="save_pretrained"):
        encoder.save(tmp_path / "saved")
