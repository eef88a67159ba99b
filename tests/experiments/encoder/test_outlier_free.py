import subprocess
import sys

import pytest
import torch
from transformers import MPNetConfig, MPNetModel

from experiments.encoder.outlier_free import (
    attention_of,
    saved_attention,
    softmax_1_attention,
    transformer_of,
    use_attention,
)
from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.hopfield.sparsity import softmax_1
from tests.retrieval.tiny_bert import loop_attention, loop_bert, tiny_bert


def parts(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, n, 4, dtype=dtype, generator=generator) for n in (5, 6, 6)]


def test_attention_is_the_formula_in_plain_loops():
    query, key, value = parts()
    allowed = torch.rand(2, 1, 5, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    allowed[0, 0, 0] = False
    state, weights = softmax_1_attention(None, query, key, value, allowed, scaling=0.7)
    expected = torch.stack([loop_attention(query[b], key[b], value[b], 0.7, allowed[b, 0]) for b in range(2)])
    torch.testing.assert_close(state, expected.transpose(1, 2))
    assert weights is None
    assert state[0, 0].eq(0).all(), "a query that may attend to nothing"


def test_a_mask_of_numbers_is_added_to_the_scores():
    query, key, value = parts()
    bias = torch.randn(2, 1, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    state, _ = softmax_1_attention(None, query, key, value, bias)
    expected = softmax_1(query @ key.transpose(-1, -2) / 2 + bias) @ value
    torch.testing.assert_close(state, expected.transpose(1, 2))


def test_heads_may_share_keys():
    query, _, _ = parts()
    _, key, value = (part[:, :1] for part in parts(3))
    state, _ = softmax_1_attention(None, query, key, value, None)
    torch.testing.assert_close(state, (softmax_1(query @ key.transpose(-1, -2) / 2) @ value).transpose(1, 2))


def test_gradients_of_the_attention():
    query, key, value = (part[:1, :2].clone().requires_grad_() for part in parts())
    mask = torch.ones(1, 1, 5, 6, dtype=torch.bool)
    mask[..., 4:] = False
    assert torch.autograd.gradcheck(lambda *x: softmax_1_attention(None, *x, mask)[0], (query, key, value))


def test_a_bias_that_would_be_left_out_is_refused():
    with pytest.raises(RetrievalError, match="use softmax"):
        softmax_1_attention(None, *parts(), None, position_bias=torch.zeros(1))


@pytest.fixture
def padded():
    """Two texts of 7 and 4 tokens; what stands in the padding must not matter."""
    ids = torch.tensor([[2, 5, 6, 7, 8, 9, 3], [2, 10, 11, 3, 12, 13, 14]])
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    return ids, mask


def test_a_padded_batch_is_each_text_alone_in_plain_loops(padded):
    model = tiny_bert()
    ids, mask = padded
    with torch.no_grad():
        softmax = model(input_ids=ids, attention_mask=mask).last_hidden_state
        use_attention(model, "softmax1")
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        torch.testing.assert_close(states[0], loop_bert(model, ids[0]), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(states[1, :4], loop_bert(model, ids[1, :4]), atol=1e-5, rtol=1e-4)
        assert (states[1, :4] - softmax[1, :4]).abs().max() > 0.01
        use_attention(model, "softmax")
        torch.testing.assert_close(model(input_ids=ids, attention_mask=mask).last_hidden_state, softmax)


def test_gradients_of_a_model_are_those_of_the_plain_loops(padded):
    model = tiny_bert().double()
    use_attention(model, "softmax1")
    ids, mask = padded
    weights = [layer.attention.self.key.weight for layer in model.encoder.layer]
    ours = torch.autograd.grad(model(input_ids=ids, attention_mask=mask).last_hidden_state[1, 0, :5].sum(), weights)
    theirs = torch.autograd.grad(loop_bert(model, ids[1, :4])[0, :5].sum(), weights)
    for one, other in zip(ours, theirs, strict=True):
        assert other.abs().max() > 1e-3
        torch.testing.assert_close(one, other)


def test_a_decoder_keeps_its_causal_mask():
    model = tiny_bert()
    model.config.is_decoder = True
    decoder = type(model)(model.config).eval()
    use_attention(decoder, "softmax1")
    ids = torch.tensor([[2, 5, 6, 7]])
    with torch.no_grad():
        first = decoder(input_ids=ids, use_cache=False).last_hidden_state[:, :3]
        later = decoder(input_ids=torch.tensor([[2, 5, 6, 9]]), use_cache=False).last_hidden_state[:, :3]
    torch.testing.assert_close(first, later)


def test_the_choice_is_saved_with_the_model(tmp_path):
    model = tiny_bert()
    assert attention_of(model) == saved_attention(model) == "softmax"
    use_attention(model, "softmax1")
    assert attention_of(model) == "softmax1"
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert saved_attention(again) == "softmax1"
    again.config.convcoa_attention = "softmax7"
    with pytest.raises(RetrievalError, match=r"softmax7.*upgrade"):
        saved_attention(again)


def test_a_model_that_computes_its_attention_itself_is_refused():
    model = MPNetModel(MPNetConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
    with pytest.raises(RetrievalError, match=r"MPNetModel cannot be set to softmax1; use a BERT") as caught:
        use_attention(model, "softmax1")
    assert "\n" not in str(caught.value)
    assert transformer_of(model) is model
    assert saved_attention(model) == "softmax"


@pytest.mark.slow
def test_importing_registers_nothing():
    program = (
        "import experiments.encoder.outlier_free, transformers\n"
        "assert 'convcoa_softmax1' not in transformers.AttentionInterface().valid_keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
