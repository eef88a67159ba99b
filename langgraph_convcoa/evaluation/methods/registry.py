"""The table of methods: their names, a line on each, and where it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.methods.base import Kit, Method

OURS = "ours"
CLOSED_BOOK = "closed-book"
_WITHOUT = "ours-without-"


@dataclass(frozen=True)
class MethodEntry:
    """A method that can be asked for by name."""

    description: str  # one line, with the number of its model calls
    # The module of this package that has it, imported when it is first needed; a method is the function of its name.
    module: str
    searches: bool = True  # whether it needs a retriever
    # Whether it keeps more of a conversation than its history: one that is resumed in the middle, in a new process, must see
    # the earlier questions again, in order.
    remembers: bool = False


def _alone(description: str) -> MethodEntry:
    return MethodEntry(description, "without_retrieval", searches=False)


def _ours(description: str, remembers: bool = True) -> MethodEntry:
    return MethodEntry(description, "ours", remembers=remembers)


METHODS: Mapping[str, MethodEntry] = MappingProxyType(
    {
        CLOSED_BOOK: _alone("the model alone; 1 call"),
        "few-shot": _alone("the model after answered examples; 1 call"),
        "chain-of-thought": _alone("step by step (Wei et al. 2022); 1 call"),
        "self-consistency": _alone(
            "the answer that most sampled chains of thought agree on (Wang et al. 2022); as many calls as samples"
        ),
        "least-to-most": _alone("sub-problems one after another (Zhou et al. 2022); n + 2 calls"),
        "tree-of-thoughts": _alone("plans and answers, the best by vote (Yao et al. 2023); 4 calls a sample"),
        "self-ask": MethodEntry("follow-up questions, each searched (Press et al. 2022); n + 1 calls", "with_retrieval"),
        "react": MethodEntry("thoughts, searches, observations in turn (Yao et al. 2022); n + 1 calls", "react"),
        "dsp": MethodEntry("two hops of query and search, then the answer (Khattab et al. 2022); 3 calls", "with_retrieval"),
        "search-in-the-chain": MethodEntry(
            "a chain of queries, each verified by a search (Xu et al. 2023); 1 call and one a correction",
            "search_in_the_chain",
        ),
        "chain-of-action": MethodEntry(
            "a chain with guesses, verified by the plain MRFS (Pan et al. 2024a); 2 calls and one a correction",
            "chain_of_action",
        ),
        "history-aware-rag": MethodEntry("rewrite the question, retrieve, answer; 2 calls, 1 at first", "with_retrieval"),
        OURS: _ours("the conversational chain of action; 1 or 2 calls"),
        "ours-without-look": _ours("ours in the papers' form, which guesses before it looks anything up"),
        "ours-without-alignment": _ours("ours, every guess answered again from the evidence"),
        "ours-without-verification": _ours("ours, every guess kept unchecked"),
        "ours-without-cks": _ours("ours without a knowledge set, the history as plain text", remembers=False),
        "ours-without-filling": _ours("ours, missing guesses stay unanswered"),
        "ours-without-draft": _ours("ours, the answer always written from the chain"),
    }
)
"""Every method by its name. Beside them there is "ours-without-ACTION" for each action of a kit."""


def make_method(name: str, kit: Kit) -> Method:
    """Make a method.

    InputError where there is no such method, or the kit lacks what it needs.
    """
    actions = [action.name for action in kit.all_actions()]
    check_methods([name], actions)
    entry = METHODS.get(name, METHODS[OURS])
    if entry.searches and not actions:
        raise InputError(f"the method {name!r} searches: give documents or an index, or leave it out")
    if entry.module == "ours":
        from langgraph_convcoa.evaluation.methods.ours import make_ours

        return make_ours(kit, name, left_out="" if name in METHODS else name.removeprefix(_WITHOUT))
    if entry.searches and kit.retriever is None:
        raise InputError(f"the method {name!r} needs a retriever: give documents or an index, or leave it out")
    from langgraph_convcoa.evaluation.methods.base import as_method

    module = import_module(f"langgraph_convcoa.evaluation.methods.{entry.module}")
    return as_method(kit, name, getattr(module, name.replace("-", "_")))


def check_methods(names: Iterable[str], actions: Sequence[str] = ()) -> None:
    """See that every name is known, before anything is loaded.

    One of the `actions` can be left out where another is left.

    Example:
        >>> check_methods(["ours", "react"])
        >>> check_methods(["reakt"])
        Traceback (most recent call last):
        langgraph_convcoa.errors.InputError: there is no method 'reakt'; choose from closed-book, few-shot, ...
    """
    known = [*METHODS, *(f"{_WITHOUT}{action}" for action in (actions if len(actions) > 1 else ()))]
    for name in names:
        if name not in known:
            raise InputError(f"there is no method {name!r}; choose from {', '.join(known)}")


def remembers(name: str) -> bool:
    """Whether a method keeps more of a conversation than its history (see `MethodEntry`)."""
    return METHODS.get(name, METHODS[OURS]).remembers
