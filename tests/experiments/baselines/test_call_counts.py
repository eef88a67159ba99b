"""Every method over HTTP on loopback: its model calls are those that its paper makes, counted by the server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments.baselines.methods import ALL_METHODS
from experiments.costs.scripted import Script, ScriptedQuestion, make_script
from tests.experiments.baselines.served import ASKING, SAMPLES, ask


def missing(one: ScriptedQuestion) -> int:
    return sum(not sub.guess for sub in one.sub_questions)


def wrong(one: ScriptedQuestion) -> int:
    return sum(bool(sub.guess) and not sub.right for sub in one.sub_questions)


def n(one: ScriptedQuestion) -> int:
    return len(one.sub_questions)


K = 3
"""Passages a search."""


def opened(one: ScriptedQuestion) -> int:
    """What the first look does not find: it finds a passage for each of k sub-questions."""
    return max(n(one) - K, 0)


def ours(one: ScriptedQuestion) -> int:
    """The plan, which answers where the look has found everything; else one more call for all that is looked up."""
    return 2 if opened(one) else 1


def guessing(one: ScriptedQuestion) -> int:
    """The papers' form: the plan, whose draft is the answer where every guess is right; else one more call."""
    return 2 if wrong(one) or missing(one) else 1


def scripts(*parts: tuple[int, float]) -> Script:
    """Two questions for each number of sub-questions and share of right guesses."""
    made = [make_script(subs, share, questions=2, seed=4) for subs, share in parts]
    return Script(tuple(one for script in made for one in script.questions))


CALLS: dict[str, Callable[[ScriptedQuestion], int]] = {
    "closed-book": lambda one: 1,
    "few-shot": lambda one: 1,
    "chain-of-thought": lambda one: 1,
    "self-consistency": lambda one: SAMPLES,
    # The decomposition, each sub-problem, the question itself.
    "least-to-most": lambda one: 1 + n(one) + 1,
    # Two levels, each with k thoughts and k votes.
    "tree-of-thoughts": lambda one: 2 * (SAMPLES + SAMPLES),
    # A call for each follow-up question, and one that ends.
    "self-ask": lambda one: n(one) + 1,
    "react": lambda one: n(one) + 1,
    # Two hops and the prediction.
    "dsp": lambda one: 2 + 1,
    # The chain, and again after each correction or completion.
    "search-in-the-chain": lambda one: 1 + wrong(one) + missing(one),
    # The chain, a summary for each conflict, the answer; missing guesses are filled with the best passage.
    "chain-of-action": lambda one: 1 + wrong(one) + 1,
    # There is nothing to rewrite in a first turn.
    "history-aware-rag": lambda one: 1,
    "ours": ours,
    "ours-without-look": guessing,
    "ours-without-alignment": lambda one: 2,
    "ours-without-verification": lambda one: 2,
    "ours-without-cks": ours,
    "ours-without-filling": guessing,
    "ours-without-draft": lambda one: 2,
}
SEARCHES: dict[str, Callable[[ScriptedQuestion], int]] = {
    **dict.fromkeys(ASKING, n),
    **dict.fromkeys([name for name, entry in ALL_METHODS.items() if not entry.searches], lambda one: 0),
    "dsp": lambda one: 2,
    "history-aware-rag": lambda one: 1,
    **dict.fromkeys(("ours", "ours-without-cks", "ours-without-draft"), lambda one: 1 + opened(one)),
}


def test_every_method_is_counted() -> None:
    assert set(CALLS) == set(ASKING)


@pytest.mark.parametrize("name", ASKING)
def test_calls_are_those_of_the_paper(name: str) -> None:
    script = scripts((1, 0.0), (3, 0.5), (3, 1.0), (5, 0.5))
    for one, asked in zip(script.questions, ask(name, script), strict=True):
        about = f"{name}, {one.id}, {wrong(one)} wrong, {missing(one)} missing"
        assert asked.requests == asked.calls == CALLS[name](one), about
        assert asked.searches == SEARCHES[name](one), about
        assert asked.outcome.malformed == 0, about
        assert asked.input_tokens > 0


@pytest.mark.parametrize("name", ["ours", "ours-without-cks"])
def test_ours_makes_one_or_two_calls_however_long_the_chain(name: str) -> None:
    script = scripts(*((n, share) for n in (1, 6, 12) for share in (0.0, 0.5, 1.0)))
    for one, asked in zip(script.questions, ask(name, script), strict=True):
        assert asked.requests == ours(one)
        assert 1 <= asked.requests <= 2


@pytest.mark.parametrize("name", [name for name in ASKING if ALL_METHODS[name].searches])
def test_methods_that_search_answer_right_whatever_the_model_believes(name: str) -> None:
    script = make_script(2, 0.0, questions=2, missing_share=0.5, seed=1)
    # What one sub-question finds would answer the other, too.
    k = 1 if name == "ours-without-filling" else K
    for one, asked in zip(script.questions, ask(name, script, k=k), strict=True):
        assert asked.outcome.passages
        unfilled = name == "ours-without-filling" and missing(one)
        right = one.answer.rstrip(".") in asked.outcome.answer.replace(" [1]", "").replace(" [2]", "")
        assert right == (not unfilled)
        assert {f"{one.id}#{number}" for number in (1, 2)} <= set(asked.outcome.passages)
