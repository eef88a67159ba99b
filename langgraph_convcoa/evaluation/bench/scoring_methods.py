"""What `convcoa bench scoring` times."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateSettings, ApproximateStage, Over
from langgraph_convcoa.retrieval.hybrid.ann_search import search_candidates
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.patterns import PATTERN_TYPES, Patterns, PatternType, encode_patterns
from langgraph_convcoa.retrieval.scoring.topk import Ranking, search

METHODS = ("product", "float32", "int8", "faiss", "langchain")
"""The bare torch product over the same patterns; `search` over float32, int8, and, where named, float16 and bfloat16 patterns;
FAISS `IndexFlatIP` over the same patterns; LangChain's `InMemoryVectorStore` over the whole-passage patterns, one query at a
time. Where named, `search_candidates` over an HNSW graph of the windows (approximate) or of the whole passages
(approximate-passages)."""

APPROXIMATE: dict[str, Over] = {"approximate": "windows", "approximate-passages": "passages"}
SEARCHES: dict[str, PatternType] = {name: name for name in PATTERN_TYPES}
KNOWN = (*METHODS, *(name for name in SEARCHES if name not in METHODS), *APPROXIMATE)
_ROWS = 65_536

Method = Callable[[Vectors], object]


def check_methods(methods: Sequence[str]) -> None:
    """Raise InputError for a method that is unknown or not installed."""
    unknown = [name for name in methods if name not in KNOWN]
    if unknown or not methods:
        raise InputError(f"There is no method {', '.join(unknown) or '(none named)'}; choose from {', '.join(KNOWN)}.")
    if "faiss" in methods and importlib.util.find_spec("faiss") is None:
        raise InputError("FAISS is not installed; pip install faiss-cpu, or leave it out: --methods product,float32,int8.")
    if any(name in APPROXIMATE for name in methods) and importlib.util.find_spec("usearch") is None:
        raise InputError('The approximate stage needs usearch: pip install "langgraph-convcoa[approximate]", or leave it out.')


def prepare(patterns: Patterns, methods: Sequence[str], k: int, graphs: Path | None, progress: Progress) -> dict[str, Method]:
    """What each method does with queries; all that can be made beforehand is.

    Args:
        patterns: A memory of float32.
        methods: By name.
        k: How many passages a query.
        graphs: A folder of its own for this memory's graphs, which are read from there or kept there.
        progress: Of building a graph.
    """
    stages: dict[str, Method] = {}
    for name in methods:
        if name == "product":
            stages[name] = lambda x: torch.from_numpy(x) @ patterns.tensor.T
        elif name == "faiss":
            stages[name] = _faiss(patterns, k)
        elif name == "langchain":
            stages[name] = _langchain(patterns, k)
        elif name in APPROXIMATE:
            stages[name] = _approximate(patterns, APPROXIMATE[name], k, graphs, progress)
        else:
            stages[name] = _searcher(patterns, SEARCHES[name], k)
    return stages


def _searcher(patterns: Patterns, dtype: PatternType, k: int) -> Callable[[Vectors], list[Ranking]]:
    if dtype != patterns.dtype:
        parts = [encode_patterns(patterns.rows(a, a + _ROWS), dtype) for a in range(0, len(patterns.values), _ROWS)]
        values = np.concatenate([part[0] for part in parts])
        scales = np.concatenate([part[1] for part in parts]) if dtype == "int8" else None
        patterns = Patterns(values, patterns.offsets, scales, dtype)
    return lambda x: search(patterns, x, k=k)


def _approximate(patterns: Patterns, over: Over, k: int, graphs: Path | None, progress: Progress) -> Method:
    settings = ApproximateSettings(over=over)
    file = None if graphs is None else graphs / f"{over}-{settings.connectivity}-{settings.expansion_add}.safetensors"
    if file is not None and file.is_file():
        stage = ApproximateStage.load(file)
    else:
        stage = ApproximateStage(
            patterns.d, over=over, connectivity=settings.connectivity, expansion_add=settings.expansion_add
        )
        stage.add(patterns, progress=progress)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            stage.save(file)
    return lambda x: search_candidates(patterns, x, stage.candidates, k=k, count=settings.candidates)


def _faiss(patterns: Patterns, k: int) -> Callable[[Vectors], object]:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(patterns.d)
    index.add(patterns.values)
    return lambda x: index.search(x, k)


def _langchain(patterns: Patterns, k: int) -> Callable[[Vectors], object]:
    store = InMemoryVectorStore(_Ready(patterns))
    store.add_texts([str(n) for n in range(patterns.n)])
    return lambda x: [store.similarity_search_by_vector(row.tolist(), k=k) for row in x]


class _Ready(Embeddings):
    """Hands out the whole-passage patterns by number."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._patterns.take(self._patterns.offsets[[int(text) for text in texts]]).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]
