"""The weights of the sentence ranking, fitted on a small corpus."""

from pathlib import Path

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from experiments.sentence_ranking.__main__ import fit_weights
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.reasoning.extractive.weights import SENTENCE_FEATURES
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from tests.data import write_dataset


def test_what_the_right_sentences_have_gets_weight(tmp_path: Path) -> None:
    cities = ["Oslo", "Bern", "Lima", "Rome"]
    passages = [Document(f"{c} has a port. {c} was founded in 10{n}0. It rains.", id=str(n)) for n, c in enumerate(cities)]
    queries = [
        Query(str(n), f"When was {c} founded?", gold=(str(n),), references=(f"10{n}0",), split="train")
        for n, c in enumerate(cities)
    ]
    folder = write_dataset(tmp_path, queries, passages, ".jsonl.gz")
    found = fit_weights(folder, encoder=as_encoder(DeterministicFakeEmbedding(size=16)), progress=False)
    assert list(found) == list(SENTENCE_FEATURES)
    for feature in ("question words in the sentence", "a word of the wanted type"):
        assert min(found[feature]) > 0
    assert found["similarity"][0] == 0
