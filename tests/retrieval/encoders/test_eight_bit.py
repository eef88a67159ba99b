import sys

import pytest
import torch

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.eight_bit import EIGHT_BIT, installed, quantise, quietly, weight_bytes
from tests.retrieval.tiny_bert import tiny_bert

PACKAGES = {"torchao-int8": "torchao", "bitsandbytes-int8": "bitsandbytes"}


@pytest.mark.parametrize("dtype", EIGHT_BIT)
def test_eight_bits_are_near_and_smaller(dtype, capfd):
    pytest.importorskip(PACKAGES[dtype])
    plain, small = tiny_bert(width=64), tiny_bert(width=64)
    ids = torch.arange(18).reshape(2, 9)
    with torch.no_grad(), quietly():
        expected = plain(input_ids=ids).last_hidden_state
        quantise(small, dtype)
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
    with quietly():
        quantise(model, "torchao-int8")
        rows = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(model(rows)[:1], model(rows[:1]))


@pytest.mark.parametrize("dtype", EIGHT_BIT)
def test_a_package_that_is_missing_is_named(dtype, monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGES[dtype], None)
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(RetrievalError, match=r"pip install \"langgraph-convcoa\[int8\]\"") as caught:
        quantise(torch.nn.Sequential(torch.nn.Linear(4, 4)), dtype)
    assert "\n" not in str(caught.value)


def test_what_a_package_cannot_do_here_is_one_line(monkeypatch):
    def fail(_model):
        raise RuntimeError("no kernel\nwith more")

    monkeypatch.setattr("langgraph_convcoa.retrieval.encoders.eight_bit._torchao", fail)
    with pytest.raises(RetrievalError, match=r"does not work here \(no kernel\); use dtype"):
        quantise(torch.nn.Linear(4, 4), "torchao-int8")


def test_only_types_with_their_package_are_offered(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "torchao" else None)
    assert installed() == ("torchao-int8",)
