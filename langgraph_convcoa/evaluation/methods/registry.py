"""The table of methods: their names, a line on each, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langgraph_convcoa.evaluation.methods.base import Kit, Method

OURS = "ours"
CLOSED_BOOK = "closed-book"
_REMOVED = (
    "few-shot",
    "chain-of-thought",
    "self-consistency",
    "least-to-most",
    "tree-of-thoughts",
    "self-ask",
    "dsp",
    "search-in-the-chain",
    "chain-of-action",
    "ours-without-alignment",
    "ours-without-verification",
    "ours-without-cks",
    "ours-without-filling",
    "ours-without-draft",
)


@dataclass(frozen=True)
class MethodEntry:
    """A method that can be asked for by name."""

    description: str  # one line, with the number of its model calls
    make: Callable[[Kit, str], Method]  # makes it with a kit and its name
    searches: bool = True  # whether it needs a retriever
    # Whether it keeps more of a conversation than its history: one that is resumed in the middle, in a new process, must see
    # the earlier questions again, in order.
    remembers: bool = False
    takes_actions: bool = False  # whether actions can replace the retriever


# Modules are imported when a method is made: the command line needs only the names.
def _closed_book(kit: Kit, name: str) -> Method:
    from langgraph_convcoa.evaluation.methods.base import as_method
    from langgraph_convcoa.evaluation.methods.closed_book import closed_book

    return as_method(kit, name, closed_book)


def _history_aware_rag(kit: Kit, name: str) -> Method:
    from langgraph_convcoa.evaluation.methods.base import as_method
    from langgraph_convcoa.evaluation.methods.history_aware_rag import history_aware_rag

    return as_method(kit, name, history_aware_rag)


def _react(kit: Kit, name: str) -> Method:
    from langgraph_convcoa.evaluation.methods.base import as_method
    from langgraph_convcoa.evaluation.methods.react import react

    return as_method(kit, name, react)


def _ours(kit: Kit, name: str) -> Method:
    from langgraph_convcoa.evaluation.methods.ours import make_ours

    return make_ours(kit, name)


def _ours_without_look(kit: Kit, name: str) -> Method:
    from langgraph_convcoa.evaluation.methods.ours import make_ours

    return make_ours(kit, name, settings={"look_first": False})


METHODS: Mapping[str, MethodEntry] = MappingProxyType(
    {
        CLOSED_BOOK: MethodEntry("the model alone; 1 call", _closed_book, searches=False),
        "history-aware-rag": MethodEntry("rewrite the question, retrieve, answer; 2 calls, 1 at first", _history_aware_rag),
        "react": MethodEntry("thoughts, searches, observations in turn (Yao et al. 2022); n + 1 calls", _react),
        OURS: MethodEntry("the conversational chain of action; 1 or 2 calls", _ours, remembers=True, takes_actions=True),
        "ours-without-look": MethodEntry(
            "ours in the papers' form, which guesses before it looks anything up; 1 or 2 calls",
            _ours_without_look,
            remembers=True,
            takes_actions=True,
        ),
    }
)
"""The methods of `convcoa evaluate qa` by name."""


def make_method(name: str, kit: Kit, methods: Mapping[str, MethodEntry] = METHODS) -> Method:
    """Make a method.

    Raises:
        InputError: There is no such method, or the kit lacks what it needs.
    """
    check_methods([name], methods)
    entry = methods[name]
    if entry.searches and kit.retriever is None and not (entry.takes_actions and kit.actions):
        raise InputError(f"the method {name!r} needs a retriever: give documents or an index, or leave it out")
    return entry.make(kit, name)


def check_methods(names: Iterable[str], methods: Mapping[str, MethodEntry] = METHODS) -> None:
    """Check that every name is known, before anything is loaded.

    Example:
        >>> check_methods(["ours", "react"])
        >>> check_methods(["reakt"])
        Traceback (most recent call last):
        langgraph_convcoa.errors.InputError: there is no method 'reakt'; choose from closed-book, history-aware-rag, ...
    """
    for name in names:
        if name in methods:
            continue
        if name in _REMOVED:
            raise InputError(
                f"the method {name!r} was removed: run python -m experiments.baselines DATA --model MODEL --methods {name} in "
                "the repository"
            )
        raise InputError(f"there is no method {name!r}; choose from {', '.join(methods)}")
