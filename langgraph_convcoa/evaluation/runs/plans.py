"""The plans that a model wrote in a run of `convcoa evaluate qa`, for a planner to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.registry import OURS
from langgraph_convcoa.evaluation.runs.folder import read_run
from langgraph_convcoa.reasoning.parsing import parse_chain
from langgraph_convcoa.training.planner.warm_start import Shown, plan_text

_Key = tuple[tuple[str, str, str], ...]


def plans_of_run(folder: str | Path, turns: Sequence[Query]) -> list[Shown]:
    """The plans with sub-questions that led to answers of ours and its ablations, each with its turn.

    An answer keeps its chain and the run's replies keep what the model wrote, so that both together are the plan; it is
    written anew in the form that the prompt asks for. What is to be learned for the papers' form is best taken from a run
    of `ours-without-look` with --gold-history.

    Args:
        folder: The run's.
        turns: The questions to take plans of; others, such as held-out ones, are left out.

    Raises:
        InputError: The folder holds no run, or no plan for one of the turns.
    """
    given, replies = read_run(folder)
    known = {turn.id: turn for turn in turns}
    answers = [
        one
        for one in given
        if one.method.startswith(OURS) and one.id in known and any(item["sub_question"] for item in one.chain)
    ]
    actions = list(dict.fromkeys(item["action"] for one in answers for item in one.chain))
    chains: dict[_Key, ActionChain] = {}
    if actions:
        for text in replies:
            chain = parse_chain(text, question="", actions=actions)
            if chain is not None and chain.nodes:
                key = tuple((n.action, n.sub_question, "" if n.is_missing else n.guess_answer) for n in chain.nodes)
                chains.setdefault(key, chain)
    found = [Shown(known[one.id], plan_text(chain)) for one in answers if (chain := chains.get(_key(one.chain))) is not None]
    if not found:
        raise InputError(
            f"{folder} holds no plan for a question of the data's training part: run convcoa evaluate qa on it with "
            "--split train --methods ours-without-look --gold-history."
        )
    return found


def _key(items: Sequence[Mapping[str, object]]) -> _Key:
    return tuple((str(item["action"]), str(item["sub_question"]), str(item["guess_answer"])) for item in items)
