"""The plans of a run of `convcoa evaluate qa`."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.language_models import FakeListChatModel

from langgraph_convcoa.cli.planner.plans import plans_of_run
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Answered, Turn
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.reply_cache import keep_replies
from tests.training.planner.tiny import PLANS, TURNS, Library

METHOD = "ours-without-look"


async def run(folder: Path, replies: list[str]) -> None:
    """A run of one question with its own cache of replies."""
    with RunFolder(folder, {}) as place:
        model = keep_replies(FakeListChatModel(responses=replies), place.replies)
        turn = TURNS[0]
        outcome = await make_method(METHOD, Kit(model, Library())).ainvoke(Turn(turn.id, "c", turn.question))
        place.append(Answered(METHOD, turn.id, "c", turn.question, 1, ("1982",), answer=outcome.answer, chain=outcome.chain))


async def test_a_plan_is_found_by_the_chain_that_it_became(tmp_path: Path) -> None:
    fenced = f"Here it is:\n```json\n{PLANS[0]}\n```"
    await run(tmp_path / "run", [fenced, '{"answers": [], "final_answer": "In 1982 [1]."}'])
    (shown,) = plans_of_run(tmp_path / "run", TURNS)
    assert (shown.turn, shown.plan) == (TURNS[0], PLANS[0])
    with pytest.raises(InputError, match="holds no plan for a question"):
        plans_of_run(tmp_path / "run", [Query("held out", "Who?", answer="x")])


async def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    with pytest.raises(InputError, match="holds no run"):
        plans_of_run(tmp_path, TURNS)
    await run(tmp_path / "run", [PLANS[0], "{}"])
    (tmp_path / "run" / "replies.sqlite").unlink()
    with pytest.raises(InputError, match=r"has no replies.sqlite"):
        plans_of_run(tmp_path / "run", TURNS)
    assert not (tmp_path / "run" / "replies.sqlite").exists()
    (tmp_path / "run" / "answers.jsonl").write_text("{")
    with pytest.raises(InputError, match="holds no run"):
        plans_of_run(tmp_path / "run", TURNS)
