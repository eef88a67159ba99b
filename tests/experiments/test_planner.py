"""Planners compared on held-out conversations."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.planner import __main__ as command
from experiments.planner.comparison import compare
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.training.planner.environment import Environment
from tests.data import write_dataset
from tests.training.planner.tiny import Library, plan_of, tiny_policy

QUESTION = "When did Hopfield describe the network?"
RIGHT = plan_of(QUESTION, "John Hopfield described the network in 1982.")
OPEN, REFUTED = plan_of(QUESTION), plan_of("How many moons has Pluto?", "Pluto has five moons in its orbit.")
TURNS = [Query(str(n), QUESTION, answer="1982", conversation=f"c{n // 2}") for n in range(16)]


async def test_figures_are_those_of_the_plans_and_tested_against_the_first() -> None:
    plans = {"warm": [OPEN, REFUTED] * 8, "base": ["Sure! The answer is 1982.", OPEN] * 8, "trained": [RIGHT] * 16}
    warm, base, trained = await compare(plans, TURNS, Environment(Library()))
    assert base.means["reward"] == pytest.approx((-2 + 0.95) / 2)
    assert warm.means["reward"] == pytest.approx((0.95 - 1.05) / 2)
    assert trained.means["reward"] == pytest.approx(1.45)
    assert (trained.means["sub_questions"], trained.means["kept"]) == (0.5, 1)
    # A malformed plan earns the penalty, but the turn goes on as in the graph: the question is looked up.
    assert (base.means["malformed"], base.means["accuracy"], base.means["retrievals"]) == (0.5, 1, 1)
    assert (warm.means["accuracy"], warm.means["hallucinated"], warm.means["declined"]) == (0.5, 0.5, 0.5)
    assert warm.p is None
    assert trained.p is not None
    # All eight conversations agree: both signs of two to the eighth.
    assert trained.p["reward"] == pytest.approx(2 / 2**8)
    assert trained.p["retrievals"] == 1


def test_the_command_prints_a_row_for_each_figure_and_planner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Query(str(n), QUESTION, answer="1982", gold=("0",), conversation=str(n)) for n in range(3)]
    write_dataset(tmp_path, rows, Library().found)
    monkeypatch.setattr(command, "searched", lambda *_: Library())
    models = [str(tiny_policy(tmp_path / name, seed=seed)) for seed, name in enumerate(("one", "two"))]
    command.main([str(tmp_path), *models, "--split", "all", "--longest", "8", "--temperature", "1"])
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.startswith("3 questions of 3 conversations")
    assert [line.split()[:3] for line in lines[:2]] == [["reward", "one", "-2.000"], ["reward", "two", "-2.000"]]
    assert " p " in lines[1]
