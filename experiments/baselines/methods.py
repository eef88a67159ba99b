"""The methods of the package and the baselines, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType

from experiments.baselines.ablations import ABLATIONS
from experiments.baselines.chain_of_action import chain_of_action
from experiments.baselines.search_in_the_chain import search_in_the_chain
from experiments.baselines.with_retrieval import dsp, self_ask
from experiments.baselines.without_retrieval import (
    chain_of_thought,
    few_shot,
    least_to_most,
    self_consistency,
    tree_of_thoughts,
)
from langgraph_convcoa.evaluation.methods.prompting import Asking, as_method
from langgraph_convcoa.evaluation.methods.registry import METHODS, Method
from langgraph_convcoa.evaluation.records import Outcome


def _baseline(answer: Callable[[Asking], Awaitable[Outcome]], description: str, searches: bool = True) -> Method:
    return Method(description, partial(as_method, answer=answer), searches)


ALL_METHODS: Mapping[str, Method] = MappingProxyType(
    {
        **METHODS,
        "few-shot": _baseline(few_shot, "the model after answered examples; 1 call", searches=False),
        "chain-of-thought": _baseline(chain_of_thought, "step by step (Wei et al. 2022); 1 call", searches=False),
        "self-consistency": _baseline(
            self_consistency,
            "the answer that most sampled chains of thought agree on (Wang et al. 2022); as many calls as samples",
            searches=False,
        ),
        "least-to-most": _baseline(
            least_to_most, "sub-problems one after another (Zhou et al. 2022); n + 2 calls", searches=False
        ),
        "tree-of-thoughts": _baseline(
            tree_of_thoughts, "plans and answers, the best by vote (Yao et al. 2023); 4 calls a sample", searches=False
        ),
        "self-ask": _baseline(self_ask, "follow-up questions, each searched (Press et al. 2022); n + 1 calls"),
        "dsp": _baseline(dsp, "two hops of query and search, then the answer (Khattab et al. 2022); 3 calls"),
        "search-in-the-chain": _baseline(
            search_in_the_chain, "a chain of queries, each verified by a search (Xu et al. 2023); 1 call and one a correction"
        ),
        "chain-of-action": _baseline(
            chain_of_action,
            "a chain with guesses, verified by the plain MRFS (Pan et al. 2024a); 2 calls and one a correction",
        ),
        **ABLATIONS,
    }
)
