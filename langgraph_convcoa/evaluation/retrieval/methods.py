"""The names of the retrieval methods, and what each does."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from langgraph_convcoa.errors import InputError

PLAIN = {
    "bm25": "BM25 on the question",
    "question": "the encoder on the question, one vector a passage; the end of a long passage is cut off",
    "two-turns": "the encoder on the question and the user turn before it",
    "history": "the encoder on the question and all turns before it, latest first",
    "rewrite": "the encoder on the rewrite that people wrote, for the questions that have one",
}
RETRIEVER = {
    "hybrid": "HopfieldRetriever without the evidence graph",
    "graph": "HopfieldRetriever as it comes, with the evidence graph of the passages",
    "untrained": "hybrid without the trained query encoder",
    "trained": "hybrid with the model of --model",
    "dense": "hybrid without BM25; also untrained-dense and trained-dense",
}
DENSE = "-dense"
RETRIEVAL_METHODS = PLAIN | RETRIEVER  # Descriptions by name. Further methods can be given to `evaluate_retrieval`.


_PEERS = "The ideas of other papers are in a checkout of the repository: python -m experiments.peers DATA"


def retrieval_kind(method: str) -> str:
    """A method's name without the ending "-dense", which stands for "without BM25".

    Example:
        >>> [retrieval_kind(method) for method in ("untrained-dense", "dense", "bm25")]
        ['untrained', 'hybrid', 'bm25']
    """
    return "hybrid" if method == "dense" else method.removesuffix(DENSE)


def check_retrieval_methods(
    methods: Sequence[str], further: Collection[str], *, index: bool, model: bool, rewrites: bool
) -> None:
    """Check that the methods, except those of `further`, are known and have the index, model and rewrites that they need."""
    known = [*(RETRIEVER if index else RETRIEVAL_METHODS), "untrained-dense", "trained-dense"]
    for method in methods or ["(none)"]:
        if method in further:
            continue
        if method not in known:
            what = "retrieval method over an index" if index else "retrieval method"
            raise InputError(f"Unknown {what} {method!r}; known: {', '.join([*known, *further])}. {_PEERS}")
        if retrieval_kind(method) == "trained" and not model:
            raise InputError("There is no trained model to measure; name one that convcoa train made with --model.")
        if method == "rewrite" and not rewrites:
            raise InputError("No question of the data has a rewrite; leave the method 'rewrite' out.")
