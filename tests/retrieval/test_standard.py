"""LangChain's standard suite, with the real encoder."""

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fakes import documents

_ENCODER = SentenceTransformerEncoder()
_CORPUS: list[MemoryCorpus] = []


@pytest.mark.slow
class TestHopfieldRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return HopfieldRetriever

    @property
    def retriever_constructor_params(self):
        if not _CORPUS:
            _CORPUS.append(MemoryCorpus(build_memory(documents(), _ENCODER)))
        return {"corpus": _CORPUS[0], "encoder": _ENCODER}

    @property
    def retriever_query_example(self):
        return "Who described the Hopfield network?"
