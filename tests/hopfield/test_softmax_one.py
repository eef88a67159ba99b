import math

import torch

from langgraph_convcoa.hopfield.sparsity import softmax_1


def test_softmax_1_neither_overflows_nor_divides_by_zero():
    weights = softmax_1(torch.tensor([[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4], [88.0, 89.0, 0.0]]))
    assert weights[0].tolist() == [0.5, 0.5, 0.0]
    assert weights[1].tolist() == [0.0, 0.0, 0.0]
    assert torch.isfinite(weights).all()


def test_softmax_1_at_an_infinite_beta():
    scores = torch.tensor([[2.0, 2.0, 1.0], [0.0, 0.0, -1.0], [-1.0, -2.0, -3.0]])
    third = 1 / 3
    expected = torch.tensor([[0.5, 0.5, 0.0], [third, third, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(softmax_1(scores, beta=math.inf), expected)


def test_attention_with_softmax_1_is_torch_attention_with_a_zero_key_and_value():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, n, 8, dtype=torch.float64, generator=generator) for n in (4, 6, 6))
    mask = torch.rand(2, 1, 4, 6, generator=generator) < 0.6
    own = softmax_1(query @ key.transpose(-1, -2), beta=8**-0.5, mask=mask) @ value
    padded = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (key, value))
    theirs = torch.nn.functional.scaled_dot_product_attention(
        query, *padded, attn_mask=torch.nn.functional.pad(mask, (0, 1), value=True)
    )
    torch.testing.assert_close(own, theirs)
