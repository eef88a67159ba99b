"""Planners compared on held-out conversations: the figures against hand-made plans, and the tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.planner import comparison as module
from experiments.planner.comparison import PlannerReport, evaluate_planners
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.training.planner.policy import Written
from langgraph_convcoa.training.planner.turn import Environment
from tests.training.planner.tiny import Library, plan_of

QUESTION = "When did Hopfield describe the network?"
RIGHT = plan_of(QUESTION, "John Hopfield described the network in 1982.")
OPEN, REFUTED = plan_of(QUESTION), plan_of("How many moons has Pluto?", "Pluto has five moons in its orbit.")
TURNS = [Query(str(n), QUESTION, answer="1982", conversation=f"c{n // 2}") for n in range(16)]


class Scripted:
    """Writes the same plans over and over."""

    def __init__(self, *plans: str) -> None:
        self.plans = plans

    def write(self, prompts: Sequence[Any], **_: Any) -> list[Written]:
        return [Written(self.plans[n % len(self.plans)], 100, 10) for n in range(len(prompts))]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> PlannerReport:
    planners = {
        "base": Scripted("Sure! The answer is 1982.", OPEN),
        "warm": Scripted(OPEN, REFUTED),
        "trained": Scripted(RIGHT),
    }
    monkeypatch.setattr(module, "load_policy", lambda name, device=None: planners[name])
    return evaluate_planners("d", TURNS, list(planners), Environment(Library()), baseline="warm", progress=False)


def test_figures_are_those_of_the_plans(report: PlannerReport) -> None:
    base, warm, trained = report.rows
    assert (report.questions, report.conversations, report.baseline) == (16, 8, "warm")
    assert base.means["reward"] == pytest.approx((-2 + 0.95) / 2)
    assert warm.means["reward"] == pytest.approx((0.95 - 1.05) / 2)
    assert trained.means["reward"] == pytest.approx(1.45)
    assert (trained.means["sub_questions"], trained.means["kept"], trained.means["kept_right"]) == (0.5, 1, 1)
    # A malformed plan earns the penalty, but the turn goes on as it does in the graph: the question is looked up.
    assert (base.means["malformed"], base.means["accuracy"], base.means["retrievals"]) == (0.5, 1, 1)
    assert (warm.means["accuracy"], warm.rates["hallucinated"], warm.rates["declined"]) == (0.5, 0.5, 0.5)
    assert (trained.means["calls"], trained.means["prompt_tokens"], trained.means["plan_tokens"]) == (1, 100, 10)


def test_each_is_tested_against_the_baseline_over_conversations(report: PlannerReport) -> None:
    _, warm, trained = report.rows
    assert warm.p is None
    assert trained.p is not None
    # All eight conversations agree: both signs of two to the eighth.
    assert trained.p["reward"] == pytest.approx(2 / 2**8)
    assert trained.p["retrievals"] == 1
    text = "\n".join(table.markdown() for table in report.tables())
    assert "| reward | -0.47 (p 0.0078) |  | +1.50 (p 0.0078) |" in text
    assert "| malformed plans | 50.0% (50.0% to 50.0%) | 0.0%" in text


def test_the_report_is_json(report: PlannerReport) -> None:
    told = json.loads(json.dumps(report.to_dict()))
    assert told["turns"][0]["planners"]["base"]["fault"] == "no JSON"
    assert told["turns"][1]["planners"]["warm"]["verdicts"] == ["hallucinated"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    environment = Environment(Library())
    with pytest.raises(InputError, match="name a planner"):
        evaluate_planners("d", TURNS, [], environment)
    with pytest.raises(InputError, match="named twice"):
        evaluate_planners("d", TURNS, ["a", "a"], environment)
    with pytest.raises(InputError, match="the baseline c is none"):
        evaluate_planners("d", TURNS, ["a", "b"], environment, baseline="c")
    with pytest.raises(ModelError, match="holds no planner"):
        evaluate_planners("d", TURNS, [tmp_path], environment)
    with pytest.raises(InputError, match="no question with an answer"):
        evaluate_planners("d", [Query("1", "Who?")], ["a"], environment)
