import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.outlier_free import transformer_of
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from tests.retrieval.tiny_bert import loop_bert, save_tiny_bert

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


def test_bfloat16_is_close_and_has_a_name_of_its_own(minilm):
    half = SentenceTransformerEncoder(dtype="bfloat16")
    texts = ["The Hopfield network stores patterns.", "Sparsemax gives sparse probabilities."]
    rows = half.encode_passages(texts)
    assert rows.dtype == np.float32
    assert (rows * minilm.encode_passages(texts)).sum(axis=1).min() > 0.9995
    assert half.name != minilm.name


@pytest.mark.parametrize("only_torch_can_tell", [False, True])
@pytest.mark.parametrize(
    ("native", "eight", "expected"), [(True, True, "bfloat16"), (False, True, "int8"), (False, False, "float32")]
)
def test_auto_takes_what_the_processor_has(minilm, monkeypatch, native, eight, expected, only_torch_can_tell):
    told = None if only_torch_can_tell else native
    if only_torch_can_tell and expected == "int8":
        eight, expected = None, "float32"
    monkeypatch.setattr("langgraph_convcoa.retrieval.encoders.sentence_transformer.has_bfloat16", lambda: told)
    monkeypatch.setattr("langgraph_convcoa.retrieval.encoders.sentence_transformer.has_int8", lambda: eight)
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": native}, raising=False)
    auto = SentenceTransformerEncoder(device="cpu")
    assert auto.name == SentenceTransformerEncoder(device="cpu", dtype=expected).name


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


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 0}, {"dtype": "int4"}, {"attention": "softmax_1"}, {"pooling": "max"}],
    ids=lambda s: next(iter(s)),
)
def test_bad_settings(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        SentenceTransformerEncoder(**settings)


TEXTS = ["The Hopfield network stores patterns.", "Who wrote it?", "Sparsemax gives probabilities of which many are zero."]


def test_softmax1_on_the_real_checkpoint_is_the_plain_loops(minilm):
    """In a padded batch, against every text alone, mean-pooled."""
    other = SentenceTransformerEncoder(dtype="float32", attention="softmax1")
    rows = other.encode_passages(TEXTS)
    bert = transformer_of(minilm.model)
    for text, row in zip(TEXTS, rows, strict=True):
        ids = torch.tensor(minilm.model.tokenizer(text)["input_ids"])
        with torch.no_grad():
            expected = torch.nn.functional.normalize(loop_bert(bert.cpu(), ids).mean(dim=0), dim=0)
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-5)
    assert np.abs(rows - minilm.encode_passages(TEXTS)).max(axis=1).min() > 1e-3
    assert len({other.name, minilm.name}) == 2


def test_a_saved_encoder_gives_the_same_vectors(tmp_path):
    checkpoint = save_tiny_bert(tmp_path / "bert")
    encoder = SentenceTransformerEncoder(str(checkpoint), dtype="float32", attention="softmax1", pooling="cls")
    expected = encoder.encode_passages(["what is a network", "who"])
    encoder.save(tmp_path / "saved")
    again = SentenceTransformerEncoder(str(tmp_path / "saved"), dtype="float32")
    np.testing.assert_allclose(again.encode_passages(["what is a network", "who"]), expected, atol=1e-6)
    assert "softmax1" in again.name
    told = SentenceTransformerEncoder(str(tmp_path / "saved"), dtype="float32", attention="softmax")
    assert np.abs(told.encode_passages(["what is a network", "who"]) - expected).max() > 0.01
    assert told.name != again.name
    with pytest.raises(InputError, match="empty one"):
        encoder.save(tmp_path / "saved")
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_an_encoder_that_cannot_be_written_leaves_nothing(tmp_path):
    encoder = SentenceTransformerEncoder(str(save_tiny_bert(tmp_path / "bert")), dtype="float32")
    (tmp_path / "file").write_text("")
    with pytest.raises(RetrievalError, match="cannot be saved"):
        encoder.save(tmp_path / "file" / "encoder")
    assert {file.name for file in tmp_path.iterdir()} == {"bert", "file"}


def test_pooling_as_told(tmp_path):
    """A plain checkpoint says nothing, so the mean is taken."""
    checkpoint = str(save_tiny_bert(tmp_path / "bert"))
    auto, mean, cls = (SentenceTransformerEncoder(checkpoint, dtype="float32", pooling=p) for p in ("auto", "mean", "cls"))
    text = "what is a network"
    features = cls.model.tokenizer([text], return_tensors="pt")
    with torch.no_grad():
        state = transformer_of(cls.model)(**features).last_hidden_state[0]
    for encoder, expected in ((cls, state[0]), (mean, state.mean(dim=0)), (auto, state.mean(dim=0))):
        row = encoder.encode_queries([text])[0]
        np.testing.assert_allclose(row, torch.nn.functional.normalize(expected, dim=0).numpy(), atol=1e-5)
    assert auto.name == mean.name != cls.name


def test_eight_bits_are_close_and_have_names_of_their_own(minilm, tmp_path):
    pytest.importorskip("torchao")
    small = SentenceTransformerEncoder(dtype="torchao-int8")
    rows = small.encode_passages(TEXTS)
    assert 0.99 < (rows * minilm.encode_passages(TEXTS)).sum(axis=1).min() < 0.99999
    assert small.name == minilm.name.replace("float32", "torchao-int8")
    with pytest.raises(RetrievalError, match="save it in float32"):
        small.save(tmp_path / "saved")


def test_the_settings_that_are_told_are_shown():
    encoder = SentenceTransformerEncoder("m", dtype="torchao-int8", attention="softmax1")
    assert repr(encoder) == "SentenceTransformerEncoder('m', dtype='torchao-int8', attention='softmax1')"


def test_eight_bits_say_nothing_of_their_own(tmp_path):
    """In a process of its own: the packages speak when they are first loaded."""
    pytest.importorskip("torchao")
    checkpoint = str(save_tiny_bert(tmp_path / "bert"))
    program = (
        "import sys; from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder\n"
        "SentenceTransformerEncoder(sys.argv[1], dtype=sys.argv[2]).encode_passages(['who', 'what'])"
    )
    command = [sys.executable, "-c", program, checkpoint, "torchao-int8"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout + done.stderr == ""
