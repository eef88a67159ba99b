"""An index and the encoder that opens it again, with the real model."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.documents import Document

from langgraph_convcoa import HopfieldRetriever
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, without_arithmetic
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

TEXTS = ["The Hopfield network was described in 1982.", "Sparsemax was introduced in 2016."]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
def test_an_index_of_an_earlier_release_opens_and_takes_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Earlier releases stored what the processor computed in."""
    documents = [Document(text, id=str(n)) for n, text in enumerate(TEXTS)]
    with monkeypatch.context() as earlier:
        earlier.setattr(SentenceTransformerEncoder, "name", f"{DEFAULT_ENCODER}|{dtype}|256")
        earlier.setattr(
            "langgraph_convcoa.retrieval.index.writer.encoder_settings", lambda _: {"name": DEFAULT_ENCODER, "dtype": "auto"}
        )
        HopfieldRetriever.from_documents(documents, path=tmp_path / "index")
    reopened = HopfieldRetriever.from_pretrained(tmp_path / "index")
    assert reopened.invoke("When was sparsemax introduced?", k=1)[0].id == "1"
    reopened.add_documents([Document("Entmax came in 2019.", id="2")])
    assert reopened.invoke("When did entmax come?", k=1)[0].id == "2"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("m|float32|256", "m|bfloat16|256", True),
        ("m|float32|256", "m|int8|256", True),
        ("m|float32|256", "m|torchao-int8|256", False),
        ("m|float32|256", "m|float32|512", False),
        ("m|float32|256", "n|float32|256", False),
        ("float32", "bfloat16", False),
    ],
)
def test_only_the_arithmetic_may_differ(one: str, other: str, same: bool) -> None:
    assert (without_arithmetic(one) == without_arithmetic(other)) is same
