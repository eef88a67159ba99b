import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.encoder.outlier_free import transformer_of
from experiments.encoder.outliers import kurtosis, measure_outliers
from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from tests.retrieval.tiny_bert import save_tiny_bert


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30).filter(lambda x: np.std(x) > 1e-3))
def test_kurtosis_is_that_of_scipy(values):
    from scipy.stats import kurtosis as of_scipy

    assert math.isclose(kurtosis(torch.tensor(values, dtype=torch.float64)), of_scipy(values, fisher=False), rel_tol=1e-6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return SentenceTransformerEncoder(str(save_tiny_bert(tmp_path_factory.mktemp("tiny") / "bert")), dtype="float32").model


def test_the_measures_by_hand(tiny):
    bert = transformer_of(tiny)
    text = "what is a network"
    ids = torch.tensor(tiny.tokenizer(text)["input_ids"])[None]
    attentions, layers = [], []
    with torch.no_grad():
        state = bert.embeddings(input_ids=ids)
        for layer in bert.encoder.layer:
            attentions.append(layer.attention(state)[0])
            state = layer.output(layer.intermediate(attentions[-1]), attentions[-1])
            layers.append(state)
    found = measure_outliers(tiny, [text])
    assert found.attention_norm == pytest.approx(max(float(x.abs().max()) for x in attentions), rel=1e-5)
    assert found.layer_norm == pytest.approx(max(float(x.abs().max()) for x in layers), rel=1e-5)
    assert found.attention_kurtosis == pytest.approx(np.mean([kurtosis(x) for x in attentions]), rel=1e-4)
    assert found.layer_kurtosis == pytest.approx(np.mean([kurtosis(x) for x in layers]), rel=1e-4)


def test_padding_does_not_count(tiny):
    """Of a text among copies of itself and one that is longer, so that only the padding differs."""
    short, long = "who", "what is the network of the book in the river"
    together = measure_outliers(tiny, [short, long], batch_size=2)
    apart = measure_outliers(tiny, [short, long], batch_size=1)
    assert together.layer_norm == pytest.approx(max(measure_outliers(tiny, [t]).layer_norm for t in (short, long)), rel=1e-5)
    assert apart.layer_norm == pytest.approx(
        np.mean([measure_outliers(tiny, [t]).layer_norm for t in (short, long)]), rel=1e-5
    )


def test_a_grown_dimension_is_an_outlier(tiny):
    import copy

    before = measure_outliers(tiny, ["what is a network"])
    grown = copy.deepcopy(tiny)
    with torch.no_grad():
        transformer_of(grown).encoder.layer[0].attention.output.LayerNorm.bias[3] = 200.0
    after = measure_outliers(grown, ["what is a network"])
    assert after.attention_norm > 150 > 10 > before.attention_norm
    assert after.attention_kurtosis > 3 * before.attention_kurtosis


def test_a_model_without_layers_is_refused():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(RetrievalError, match="BERT-family"):
        measure_outliers(model, ["a"])
