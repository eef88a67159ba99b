"""GRPO of a planner on whole turns, with a tiny policy."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.messages import AIMessage, HumanMessage

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.training.planner.environment import Environment, TurnReward
from langgraph_convcoa.training.planner.grpo import PlannerTraining, check_planner_folder, train_planner
from tests.training.planner.tiny import TURNS, Library, tiny_policy

pytest.importorskip("trl")
pytest.importorskip("peft")
pytestmark = [
    pytest.mark.usefixtures("without_gpu"),
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]
SMALL = {"questions": 2, "group": 2, "longest": 12, "rank": 4, "beta": 0.0, "learning_rate": 1e-2}


class Letters(Environment):
    """Rewards a plan by how much of it is one letter."""

    def __init__(self, letter: str = "e", stop_at: int | None = None) -> None:
        super().__init__(Library())
        self.letter, self.stop_at, self.steps = letter, stop_at, 0

    async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
        self.steps += 1
        if self.steps == self.stop_at:
            signal.raise_signal(signal.SIGINT)
        return [TurnReward(final=plan.count(self.letter) / max(len(plan), 1)) for plan in plans]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("base"))


def run(base: Path, out: Path, environment: Environment | None = None, **given: Any) -> Any:
    options = {name: given.pop(name) for name in ("resume", "logs") if name in given}
    return train_planner(TURNS, environment or Letters(), base, out, PlannerTraining(**{**SMALL, **given}), **options)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_cannot_be_trained_with_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no question with an answer"):
        train_planner([Query("1", "Why?")], Letters(), "a model", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ModelError, match="holds other files"):
        check_planner_folder(tmp_path / "full")
    with pytest.raises(InputError, match="group must be at least 2"):
        PlannerTraining(group=1)
    with pytest.raises(InputError, match="learning_rate"):
        PlannerTraining(learning_rate=float("nan"))


@pytest.mark.slow
def test_a_toy_policy_learns_the_plan_that_earns_more(base: Path, tmp_path: Path) -> None:
    # All weights: the drawn embeddings are so short that LoRA, which leaves them, can hardly prefer a token.
    curve = run(base, tmp_path / "out", Letters(), steps=18, group=8, full=True)
    first, last = (sum(row["reward"] for row in part) / 4 for part in (curve[:4], curve[-4:]))
    assert last > 1.5 * first


@pytest.mark.slow
def test_a_training_that_was_stopped_is_resumed(base: Path, tmp_path: Path) -> None:
    few: dict[str, Any] = {"steps": 5, "checkpoint_every": 4}
    with pytest.raises(KeyboardInterrupt):
        run(base, tmp_path / "out", Letters(stop_at=2), **few)
    # Ctrl-C is heeded at the end of the current step, with a checkpoint.
    assert [place.name for place in (tmp_path / "out.training").glob("checkpoint-*")] == ["checkpoint-2"]
    with pytest.raises(InputError, match="holds an unfinished training: resume it"):
        run(base, tmp_path / "out", **few)
    with pytest.raises(InputError, match=r"started with learning_rate = 0\.01, not 0\.5"):
        run(base, tmp_path / "out", resume=True, **few, learning_rate=0.5)
    environment = Letters()
    curve = run(base, tmp_path / "out", environment, resume=True, logs=tmp_path / "logs", **few)
    assert environment.steps == 3
    assert len(list((tmp_path / "logs").glob("events.*"))) == 1
    assert [row["step"] for row in curve] == [1, 2, 3, 4, 5]
    assert rows(tmp_path / "out" / "training.jsonl") == curve
    assert [row["step"] for row in rows(tmp_path / "out" / "plans.jsonl")] == [n for n in range(1, 6) for _ in range(4)]
    assert json.loads((tmp_path / "out" / "planner.json").read_text())["steps"] == 5
    assert any(bool(value.any()) for name, value in weights(tmp_path / "out").items() if "lora_B" in name)
    assert not (tmp_path / "out.training").exists()


@pytest.mark.slow
def test_the_prompt_that_is_trained_on_is_the_one_that_runs(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM
    from trl import GRPOTrainer

    trained: list[list[int]] = []
    sent: list[list[int]] = []
    generate = GRPOTrainer._generate_single_turn

    def seen(self: Any, prompt_ids: Any, *given: Any, **named: Any) -> Any:
        trained.extend(prompt_ids)
        return generate(self, prompt_ids, *given, **named)

    def asked(self: Any, input_ids: Any, **named: Any) -> Any:
        sent.append(input_ids[0].tolist())
        raise RuntimeError("it has seen enough")

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", seen)
    run(base, tmp_path / "out", steps=1)
    monkeypatch.setattr(LlamaForCausalLM, "generate", asked)
    model, context = f"huggingface:{base}", {"look_first": False}
    graph = build_graph(model=model, adapter=tmp_path / "out", retriever=Library(), context=context).compile()
    for turn in TURNS:
        earlier = [message for asked, said in turn.history for message in (HumanMessage(asked), AIMessage(said))]
        with pytest.raises(ModelError, match="seen enough"):
            graph.invoke({"messages": [*earlier, HumanMessage(turn.question)]})
    assert len(sent) == len(TURNS)
    assert all(ids in trained for ids in sent)


@pytest.mark.slow
def test_plans_without_a_reward_teach_nothing(base: Path, tmp_path: Path) -> None:
    class Failing(Letters):
        def __init__(self, rewards: Sequence[float | None]) -> None:
            super().__init__()
            self.found = rewards

        async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
            return [None if one is None else TurnReward(final=one) for one in self.found]

    with pytest.raises(InputError, match="No plan of this step"):
        run(base, tmp_path / "out", Failing([None] * 4), steps=1)
    # A group with a single reward, and one whose rewards are equal, teach nothing; no reward is no zero.
    curve = run(base, tmp_path / "out", Failing([None, 0.5, 1.0, 1.0]), steps=1)
    assert curve[0]["reward"] == pytest.approx(2.5 / 3)
    assert (curve[0]["turn/unrewarded"], curve[0]["frac_reward_zero_std"]) == (0.25, 0.5)
    assert not any(bool(value.any()) for name, value in weights(tmp_path / "out").items() if "lora_B" in name)
