import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoder import EmbeddingsEncoder, SentenceTransformerEncoder, as_encoder


def test_what_a_user_names_becomes_an_encoder(encoder):
    assert as_encoder(encoder) is encoder
    assert isinstance(as_encoder(DeterministicFakeEmbedding(size=4)), EmbeddingsEncoder)
    assert as_encoder(None).model_name == "sentence-transformers/all-MiniLM-L6-v2"
    assert as_encoder("some/model").model_name == "some/model"


def test_naming_an_encoder_loads_nothing():
    assert as_encoder(SentenceTransformerEncoder("no/such/model")).model_name == "no/such/model"


def test_anything_else_is_refused():
    with pytest.raises(InputError, match="int"):
        as_encoder(3)
