"""The retrieval methods by name: what each does, what it needs, and how many texts it encodes a question."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError


@dataclass(frozen=True)
class Method:
    """A retrieval method: a description, and the texts that it encodes for a question with t earlier turns.

    `needs` names what it cannot do without: "history" and "rewrite" of the data, or an argument of `evaluate_retrieval`.
    """

    description: str
    texts: str = "1"
    needs: tuple[str, ...] = ()


PLAIN = {
    "bm25": Method("BM25 on the question", "0"),
    "question": Method("the encoder on the question as it was put, one vector a passage (what is too long for it is cut off)"),
    "question-parts": Method("the same over the parts that long passages are split into for hybrid: what the split gives"),
    "two-turns": Method("the encoder on the question and the user turn before it"),
    "history": Method("the encoder on the question and all turns before it, latest first"),
    "rewrite": Method("the encoder on the rewrite that people wrote, where there is one", needs=("rewrite",)),
}
PEERS = {
    "t5qr": Method(
        "the encoder on what --rewriter, a T5 that learned from people's rewrites, makes of question and history "
        "(T5QR: Lin et al. 2020; Pan et al. 2024b, app. C.1)",
        needs=("history", "rewriter"),
    ),
    "convgqr": Method(
        "the same, with the answer that --answerer expects behind it (ConvGQR: Mo et al. 2023; Pan et al. 2024b, app. C.1)",
        needs=("history", "rewriter", "answerer"),
    ),
    "convgqr-like": Method(
        "the encoder on the question, expanded by the answers of earlier turns, latest first; nothing is generated",
        needs=("history",),
    ),
    "lecore-like": Method(
        "the encoder on the question and the words of the history that weigh most: rare in the pool, in turns like the "
        "question (the denoising of LeCoRE, Mao et al. 2023, Pan et al. 2024b, app. C.2, by words and turns; without "
        "SPLADE and distillation)",
        "t + 2",
        ("history",),
    ),
    "haconvdr-like": Method(
        "the encoder on the question and those earlier turns that are like it (the query reformulation of HAConvDR, "
        "Mo et al. 2024, Pan et al. 2024b, app. C.2; without its training, and similarity in place of its judgements)",
        "t + 2",
        ("history",),
    ),
    "haconvdr-oracle": Method(
        "the same with the earlier turns that raise the rank of a gold passage: a bound, since it looks at the answer",
        "t + 2",
        ("history",),
    ),
    "dual-question": Method(
        "dot products with a question encoder that learned from conversations without Hopfield, of convcoa train "
        "--dual-question (Karpukhin et al. 2020), over the parts that hybrid searches",
        needs=("dual",),
    ),
}
RETRIEVER = {
    "dense": Method("hybrid without BM25", "t + 2"),
    "hybrid": Method("HopfieldRetriever without a walk along the evidence graph (or hopfield)", "t + 2"),
    "graph": Method("HopfieldRetriever as it comes, with a walk along the evidence graph of the passages", "t + 2"),
    "graph-without-walk": Method("graph without a step: the ranking that its walk begins at, which is hybrid's", "t + 2"),
    "graph-one-step": Method("graph with one link in a row followed", "t + 2"),
    "untrained-dense": Method("untrained without BM25", "t + 1"),
    "untrained": Method("HopfieldRetriever without what training gave", "t + 1"),
    "trained-dense": Method("trained without BM25", "t + 2", ("model",)),
    "trained": Method("HopfieldRetriever with the model that is measured", "t + 2", ("model",)),
}
PARTS, HYBRID = "-parts", "-hybrid"
"""Behind the name of a method that reads a text: over the parts that long passages are split into for hybrid, one vector
each; or searched by the untrained HopfieldRetriever with BM25, without a history."""
READERS = tuple(name for name in (*PLAIN, *PEERS) if name not in ("bm25", "question-parts", "dual-question"))
METHODS = PLAIN | PEERS | RETRIEVER
GROUP = "peers"
"""Stands for the methods of other papers, and the plain ones, that what is given allows, over the parts."""

_MISSING = {
    "model": "There is no trained model to measure; name one that convcoa train made with --model.",
    "rewriter": "{method} needs a model that rewrites questions: name its folder or hub name with --rewriter.",
    "answerer": "{method} needs a model that answers questions: name its folder or hub name with --answerer.",
    "dual": "{method} needs a question encoder: convcoa train DATA --dual-question --out DIR, then --dual DIR.",
    "rewrite": "{method} needs rewrites, and no query of {data} has one; leave it out, or rewrite with --rewriter and t5qr.",
    "history": "{method} reads earlier turns, and no query of {data} has any; measure question instead.",
}


def base_of(method: str) -> str:
    """A method without the ending that says how its text is searched.

    Example:
        >>> [base_of(method) for method in ("rewrite-hybrid", "question-parts", "hybrid", "bm25-hybrid")]
        ['rewrite', 'question', 'hybrid', 'bm25-hybrid']
    """
    found = (name for name in READERS if method in (name + PARTS, name + HYBRID))
    return next(found, "hybrid" if method == "hopfield" else method)


def chosen_methods(methods: Sequence[str], given: Collection[str], data: Dataset, *, index: bool = False) -> tuple[str, ...]:
    """The methods by name, each once, "peers" as those that are possible.

    `given` are the arguments that are there, of those that methods need.

    Raises:
        InputError: None is named, one is unknown, cannot search an index, or needs what is not there.
    """
    there = {*given, *(("history",) if any(query.history for query in data.queries) else ())}
    there |= {"rewrite"} if any(query.rewrite for query in data.queries) else set()
    found: dict[str, None] = {}
    for method in methods:
        if method == GROUP and not index:
            possible = [name for name in ("bm25", *READERS, "dual-question") if there.issuperset(METHODS[name].needs)]
            found |= dict.fromkeys(name + PARTS if name in READERS else name for name in possible)
        else:
            found[method] = None
    known = RETRIEVER if index else METHODS
    unknown = [method for method in found if base_of(method) not in known]
    if unknown or not found:
        what = "retrieval method over an index" if index else "retrieval method"
        raise InputError(f"Unknown {what} {', '.join(map(repr, unknown)) or '(none)'}; known: {', '.join(known)}.")
    for method in found:
        missing = next((need for need in known[base_of(method)].needs if need not in there), None)
        if missing:
            raise InputError(_MISSING[missing].format(method=method, data=data.name))
    return tuple(found)
