"""The methods of `convcoa evaluate qa` by name, and the names of the retrieval methods of `convcoa evaluate retrieval`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.methods.prompting import Answerer, Kit

OURS = "ours"
EXTRACTIVE = "extractive"


@dataclass(frozen=True)
class Method:
    """A method that `--methods` can name."""

    description: str  # one line, with the number of its model calls
    make: Callable[[Kit, str], Answerer]  # makes the method from a kit and a name
    searches: bool = True  # whether it needs a retriever
    asks: bool = True  # whether it needs a chat model
    # Whether the method keeps more of a conversation than the history. A run that resumes in the middle of a conversation
    # asks such a method the earlier questions again.
    remembers: bool = False


def _from(module: str, function: str, makes: bool = False) -> Callable[[Kit, str], Answerer]:
    """Return a factory that imports a method late. `function` is the method itself or, with `makes`, makes the method."""

    def make(kit: Kit, name: str) -> Answerer:
        from langgraph_convcoa.evaluation.methods.prompting import as_method

        found: Any = getattr(import_module(f"langgraph_convcoa.evaluation.methods.{module}"), function)
        method: Answerer = found(kit, name) if makes else as_method(kit, name, found)
        return method

    return make


_RAG, _REACT = _from("prompting", "history_aware_rag"), _from("prompting", "react")
_QUOTES = "ours without a model, which quotes the best sentences; no call"
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "closed-book": Method("the model alone; 1 call", _from("prompting", "closed_book"), searches=False),
        "history-aware-rag": Method("rewrite the question, retrieve, answer; 2 calls, 1 at first", _RAG),
        "react": Method("thoughts, searches, observations in turn (Yao et al. 2022); n + 1 calls", _REACT),
        OURS: Method("the conversational chain of action; 1 or 2 calls", _from("ours", "make_ours", True), remembers=True),
        EXTRACTIVE: Method(_QUOTES, _from("ours", "make_extractive", True), asks=False, remembers=True),
        "agent": Method("LangChain's agent with a search tool; n + 1 calls", _from("ours", "make_agent", True)),
        "agent-verified": Method("the same with VerifiedAnswers", _from("ours", "make_verified_agent", True)),
    }
)


def make_method(name: str, kit: Kit, methods: Mapping[str, Method] = METHODS) -> Answerer:
    """Make a method. Raises InputError if no method has this name, or the kit lacks the retriever that it needs."""
    check_methods([name], methods)
    method = methods[name]
    if method.searches and kit.retriever is None:
        raise InputError(f"the method {name!r} needs a retriever: give documents or an index, or leave it out")
    return method.make(kit, name)


def check_methods(names: Iterable[str], methods: Mapping[str, Method] = METHODS, *, model: bool = True) -> None:
    """Check that every name is known, and that there is a model for the methods that need one."""
    for name in names:
        if name not in methods:
            raise InputError(
                f"there is no method {name!r}; choose from {', '.join(methods)}. The papers' baselines and ablations are in a "
                "checkout of the repository: python -m experiments.baselines"
            )
        if methods[name].asks and not model:
            raise InputError(f"the method {name!r} needs --model; without a model there is {EXTRACTIVE!r}")


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
    "reranked": "graph with the reranker over 20 passages",
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
