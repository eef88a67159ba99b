import sys

import pytest
import torch

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.loading import quantise, quiet, weight_bytes
from tests.retrieval.tiny_bert import tiny_bert


def test_eight_bits_are_near_and_smaller(capfd):
    pytest.importorskip("torchao")
    plain, small = tiny_bert(width=64), tiny_bert(width=64)
    ids = torch.arange(18).reshape(2, 9)
    with torch.no_grad(), quiet():
        expected = plain(input_ids=ids).last_hidden_state
        quantise(small)
        found = small(input_ids=ids).last_hidden_state
    similarity = torch.nn.functional.cosine_similarity(expected, found, dim=-1)
    assert 0.99 < similarity.mean() < 0.99999
    linear = sum(m.weight.nbytes for m in plain.modules() if isinstance(m, torch.nn.Linear))
    saved = weight_bytes(plain) - weight_bytes(small)
    assert 0.6 * linear < saved < 0.75 * linear
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_eight_bit_rows_do_not_depend_on_their_batch():
    pytest.importorskip("torchao")
    model = torch.nn.Sequential(torch.nn.Linear(32, 32))
    with quiet():
        quantise(model)
        rows = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(model(rows)[:1], model(rows[:1]))


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(RetrievalError, match=r"pip install \"langgraph-convcoa\[int8\]\"") as caught:
        quantise(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    assert "\n" not in str(caught.value)


def test_what_a_package_cannot_do_here_is_one_line(monkeypatch):
    pytest.importorskip("torchao")

    def fail(_model, _config):
        raise RuntimeError("no kernel\nwith more")

    monkeypatch.setattr("torchao.quantization.quantize_", fail)
    with pytest.raises(RetrievalError, match=r"does not work here \(no kernel\); use dtype"):
        quantise(torch.nn.Linear(4, 4))
