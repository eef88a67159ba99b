"""OutEffHop's attention, and the command that compares it with softmax."""

import pytest
import torch
from langchain_core.documents import Document

from experiments.encoder.__main__ import main
from experiments.encoder.outlier_free import softmax_1_attention, use_attention
from langgraph_convcoa.datasets.queries import Query
from tests.data import write_dataset
from tests.retrieval.tiny_bert import loop_attention, loop_bert, save_tiny_bert, tiny_bert

CORPUS = [
    Document(text, id=f"p{n}")
    for n, text in enumerate(["what is a network", "the river of the book", "hopfield stores a memory", "who was in it"])
]


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


def test_the_command_prints_a_row_for_each_attention(tmp_path, capsys, monkeypatch):
    folder = write_dataset(tmp_path / "data", [Query("1", "memory memory", gold=("p2",))], CORPUS)
    model = str(save_tiny_bert(tmp_path / "bert"))
    monkeypatch.setattr("sys.argv", ["encoder", str(folder), "--model", model, "--steps", "1"])
    main()
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["softmax", "0"], ["softmax", "1"], ["softmax1", "0"], ["softmax1", "1"]]
