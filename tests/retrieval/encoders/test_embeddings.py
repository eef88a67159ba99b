import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.embeddings import (
    EmbeddingsEncoder,
    as_encoder,
    encoder_from_settings,
    encoder_settings,
)
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder


class Broken(Embeddings):
    model = "broken"

    def embed_documents(self, texts):
        raise ConnectionError("refused\nmore")

    def embed_query(self, text):
        return [float("nan")] * 3


class Changing(Embeddings):
    def embed_documents(self, texts):
        return [[1.0] * 4 for _ in texts]

    def embed_query(self, text):
        return [1.0] * 3


def test_queries_and_passages_have_length_one():
    encoder = EmbeddingsEncoder(DeterministicFakeEmbedding(size=8), batch_size=2)
    assert encoder.dimension == 8
    rows = encoder.encode_passages(["a", "b", "c"])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(rows[2], encoder.encode_queries(["c"])[0], rtol=1e-6)
    assert encoder.encode_passages([]).shape == (0, 8)


def test_a_failure_and_a_nan_are_errors_of_one_line():
    encoder = EmbeddingsEncoder(Broken())
    with pytest.raises(RetrievalError, match="refused") as caught:
        encoder.encode_passages(["a"])
    assert "\n" not in str(caught.value)
    with pytest.raises(RetrievalError, match="NaN"):
        encoder.encode_queries(["a"])


def test_queries_of_another_length_than_passages_are_an_error():
    encoder = EmbeddingsEncoder(Changing())
    encoder.encode_passages(["a"])
    with pytest.raises(RetrievalError, match="shape"):
        encoder.encode_queries(["a"])


def test_names_tell_models_apart():
    assert "broken" in EmbeddingsEncoder(Broken()).name
    assert EmbeddingsEncoder(Changing()).name != EmbeddingsEncoder(Changing()).name
    assert EmbeddingsEncoder(Changing(), name="mine").name == "mine"


def test_token_counts():
    encoder = EmbeddingsEncoder(Changing())
    assert encoder.max_tokens == 512
    assert encoder.count_tokens("x" * 300) == 102
    assert EmbeddingsEncoder(Changing(), count_tokens=len).count_tokens_batch(["a", "bc"]) == [1, 2]


@pytest.mark.parametrize("settings", [{"max_tokens": 3}, {"batch_size": 0}])
def test_bad_settings(settings):
    with pytest.raises(InputError):
        EmbeddingsEncoder(Changing(), **settings)


def test_each_deployment_of_azure_has_a_name_of_its_own():
    class Azure(DeterministicFakeEmbedding):
        model: str = "text-embedding-ada-002"
        azure_endpoint: str = "https://here.example"
        deployment: str

    one, other = (EmbeddingsEncoder(Azure(size=8, deployment=name)).name for name in ("small", "large"))
    assert one != other


def test_a_question_that_recurs_is_embedded_once():
    class Counting(DeterministicFakeEmbedding):
        def embed_query(self, text):
            asked.append(text)
            return super().embed_query(text)

    asked: list[str] = []
    encoder = EmbeddingsEncoder(Counting(size=8))
    first = encoder.encode_queries(["a", "b"])
    np.testing.assert_array_equal(encoder.encode_queries(["b", "c", "a"])[[2, 0]], first)
    assert asked == ["a", "b", "c"]


@pytest.mark.parametrize("bad", [[float("nan")] * 3, [], [1.0] * 4, None])
def test_a_bad_reply_for_a_question_is_not_kept(bad):
    class Recovering(Changing):
        def embed_query(self, text):
            return replies.pop(0)

    good = [0.0, 3.0, 4.0]
    replies = [good, bad, good]
    encoder = EmbeddingsEncoder(Recovering())
    encoder.encode_queries(["first"])
    with pytest.raises(RetrievalError):
        encoder.encode_queries(["a"])
    np.testing.assert_allclose(encoder.encode_queries(["a", "first"]), [[0, 0.6, 0.8]] * 2, rtol=1e-6)
    assert replies == []


def test_what_a_user_names_becomes_an_encoder(encoder):
    assert as_encoder(encoder) is encoder
    assert isinstance(as_encoder(DeterministicFakeEmbedding(size=4)), EmbeddingsEncoder)
    assert as_encoder(None).model_name == "sentence-transformers/all-MiniLM-L6-v2"
    assert as_encoder("some/model").model_name == "some/model"


def test_anything_else_is_refused():
    with pytest.raises(InputError, match="int"):
        as_encoder(3)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_an_encoder_can_be_made_again(dtype, encoder):
    made = SentenceTransformerEncoder("a/b", dtype=dtype)
    assert repr(encoder_from_settings(encoder_settings(made))) == repr(made)
    assert encoder_settings(encoder) is None


@pytest.mark.parametrize(
    "settings",
    [{"dtype": "auto"}, {"dtype": "bfloat16", "windows": "apart"}, {"dtype": "torchao-int8", "pooling": "auto"}, {}],
)
def test_settings_of_earlier_releases_are_read(settings):
    again = encoder_from_settings({"name": "a/b", **settings})
    assert repr(again) == repr(SentenceTransformerEncoder("a/b"))


@pytest.mark.parametrize(
    "settings", [{}, {"name": "m", "rotation": "quarter"}, {"name": "m", "dtype": "int3"}, {"name": "m", "windows": "late"}]
)
def test_settings_of_another_release_are_refused(settings):
    with pytest.raises(RetrievalError, match="index again"):
        encoder_from_settings(settings)
