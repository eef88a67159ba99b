"""Training the whole encoder: its loss in parts, and the model that comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import build_memory
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import QueryText, Reading
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.training.encoded import QueryItem
from langgraph_convcoa.training.encoder import EncoderLoss, EncoderSettings, train_encoder
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.gradient_cache import backward
from langgraph_convcoa.training.loop.trainer import TrainingSettings
from tests.retrieval.tiny_bert import save_tiny_bert
from tests.training.test_query_encoder import READING, THINGS, conversations

pytest.importorskip("accelerate")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_bert(tmp_path_factory.mktemp("full") / "bert"))


def test_gradient_caching_gives_the_gradient_of_the_whole_batch(base: str) -> None:
    texts = ["the network is a book. the river stores memory. who was the book. when is a network.", *THINGS]
    documents = [Document(text, id=str(number)) for number, text in enumerate(texts)]
    memory = build_memory(documents, SentenceTransformerEncoder(base, "cpu", dtype="float32"))
    items = [QueryItem((2, 5 + n, 3), (n,), n, ((n + 1) % 4,)) for n in range(4)]
    gradients = []
    for chunk in (None, 1, 3):
        # In double precision, where the order of sums, which differs between processors, is far below the tolerance.
        module = QueryEncoderModule.of(base, READING, device="cpu").train().double()
        loss = EncoderLoss(memory, QueryText(module.text.tokenizer, Reading(tokens=24)), windows=9)
        losses = backward(module, loss, items, chunk=chunk)
        assert losses["dpr"] > 0
        gradients.append(torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]))
    assert gradients[0].abs().max() > 1e-4
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-9, rtol=1e-6)


@pytest.mark.slow
def test_the_trained_encoder_is_saved_with_the_model(base: str, tmp_path: Path) -> None:
    data = conversations()
    settings = EncoderSettings(
        TrainingSettings(steps=40, batch_size=8, chunk=4, learning_rate=1e-3), passage_tokens=24, reading=READING
    )
    job = TrainingJob(tmp_path / "m", device="cpu")
    train_encoder(data, encoder=base, settings=settings, job=job)
    (tmp_path / "m").rename(tmp_path / "moved")
    model = RetrieverModel.load(tmp_path / "moved")
    assert model.encoder_folder == tmp_path / "moved" / "encoder"
    asked = data.examples[:16]

    def rank(**settings: str) -> float:
        retriever = HopfieldRetriever.from_documents(data.passages, lexical_weight=0, **settings)
        hits = retriever.search_batch([one.question for one in asked], [one.history for one in asked], 16)
        return float(
            np.mean([1 / (1 + [i for i, _ in found].index(one.gold[0])) for found, one in zip(hits, asked, strict=True)])
        )

    assert rank(model=str(tmp_path / "moved")) > rank(encoder=base) + 0.1
