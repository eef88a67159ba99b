"""The plans that a model wrote in a run of `convcoa evaluate qa`, for a planner to learn from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.registry import OURS
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.folder import ANSWERS, REPLIES
from langgraph_convcoa.evaluation.runs.reply_cache import ReplyCache
from langgraph_convcoa.reasoning.parsing import parse_chain
from langgraph_convcoa.training.planner.warm_start import Shown, plan_text

_Key = tuple[tuple[str, str, str], ...]


def plans_of_run(folder: str | Path, turns: Sequence[Query]) -> list[Shown]:
    """The plans with sub-questions that led to answers of ours, each with its turn.

    The chain of an answer finds the plan among the run's replies. It is rewritten in the form that the prompt asks for. For
    the papers' form take a run of `ours-without-look` with --gold-history.

    Args:
        folder: The run's.
        turns: The questions to take plans of; others, such as held-out ones, are left out.

    Raises:
        InputError: The folder holds no run, or no plan for one of the turns.
    """
    given, replies = _read_run(Path(folder))
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


def _read_run(folder: Path) -> tuple[list[Answered], list[str]]:
    """The answers of a run and the texts of the model's replies."""
    try:
        # An answer may hold other line separators than the line feed.
        lines = [line for line in (folder / ANSWERS).read_text(encoding="utf-8").split("\n") if line]
        answers = [Answered.from_dict(json.loads(line)) for line in lines]
        if not (folder / REPLIES).is_file():
            raise ValueError(f"it has no {REPLIES}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{folder} holds no run of convcoa evaluate qa ({reason}): name a run's folder.") from error
    with closing(ReplyCache(folder / REPLIES)) as replies:
        return answers, list(replies.texts())


def _key(items: Sequence[Mapping[str, object]]) -> _Key:
    return tuple((str(item["action"]), str(item["sub_question"]), str(item["guess_answer"])) for item in items)
