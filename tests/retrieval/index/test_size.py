"""The memory that a search of a large index takes, measured in a process of its own."""

import json
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.index.index import Index, save_index
from langgraph_convcoa.retrieval.memory_corpus import Memory, MemoryCorpus
from langgraph_convcoa.retrieval.patterns import Patterns, encode_patterns
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.retrieval.search import top_k
from tests.bounds import kilobytes, run_python
from tests.retrieval.conftest import BagOfWords

pytestmark = pytest.mark.slow
DIMENSION, SET = 384, 8


def make(folder, dtype, count):
    vectors = np.random.default_rng(0).standard_normal((count, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    values, scales = encode_patterns(vectors, dtype)
    passages = [Document(f"Passage {i} says this and that. " * 10, id=f"p{i}", metadata={"n": i}) for i in range(count // SET)]
    spans = [[(0, 20)] * (SET - 1)] * (count // SET)
    patterns = Patterns(values=values, scales=scales, offsets=np.arange(0, count + 1, SET), dtype=dtype)
    save_index(MemoryCorpus(Memory(passages, patterns, spans)), folder, BagOfWords(dimension=DIMENSION), {})


def measure(folder):
    """Bytes of the pattern file, and of the peak of 32 queries and of one with BM25 over what was held before."""
    encoder = BagOfWords(dimension=DIMENSION)
    HopfieldRetriever.from_texts(["Something small. And more."] * 3, encoder=encoder).invoke("small")
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    index = Index(folder)
    top_k(index.snapshot().patterns, np.random.default_rng(1).standard_normal((32, DIMENSION), dtype=np.float32), k=100)
    # Stop words alone: all scores are equal, and every set is scored in full.
    assert len(HopfieldRetriever(corpus=index, encoder=encoder, k=100).invoke("this and that")) == 100
    return (index.path / index.head.file).stat().st_size, (kilobytes("VmHWM") - before) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the memory's peak where Linux shows it")
@pytest.mark.parametrize(("dtype", "count"), [("float32", 100_000), ("int8", 100_000), ("int8", 400_000)])
def test_a_search_takes_hardly_more_memory_than_the_patterns(tmp_path, dtype, count):
    make(tmp_path / "index", dtype, count)
    code = "import json, sys\nfrom tests.retrieval.index.test_size import measure\nprint(json.dumps(measure(sys.argv[1])))"
    size, peak = json.loads(run_python("-c", code, tmp_path / "index").stdout)
    assert peak <= size + 150_000_000
