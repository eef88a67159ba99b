import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.embeddings import (
    EmbeddingsEncoder,
    as_encoder,
    encoder_from_settings,
    encoder_settings,
)
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder


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
    "settings",
    [{}, {"name": "m", "rotation": "quarter"}, {"name": "m", "dtype": "int3"}, {"name": "m", "windows": "late"}],
)
def test_settings_of_another_release_are_refused(settings):
    with pytest.raises(RetrievalError, match="index again"):
        encoder_from_settings(settings)
