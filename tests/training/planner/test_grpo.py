"""GRPO of a planner on whole turns, with a tiny policy."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.training.planner import grpo
from langgraph_convcoa.training.planner.grpo import PlannerJob, PlannerTraining, train_planner
from langgraph_convcoa.training.planner.reward import TurnReward
from langgraph_convcoa.training.planner.turn import Environment
from tests.training.planner.tiny import PLANS, TURNS, Library, tiny_policy

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]
SMALL = {"questions": 2, "group": 2, "longest": 12, "rank": 4, "beta": 0.0, "learning_rate": 1e-2}


class Letters(Environment):
    """Rewards a plan by how much of it is one letter, whatever a turn would make of it."""

    def __init__(self, letter: str = "e") -> None:
        super().__init__(Library())
        self.letter = letter

    async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
        return [TurnReward(final=plan.count(self.letter) / max(len(plan), 1)) for plan in plans]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("base"))


def run(base: Path, out: Path, environment: Environment | None = None, resume: bool = False, **given: Any) -> Any:
    notify = given.pop("notify", None)
    job = PlannerJob(out, resume=resume, notify=notify, logs=given.pop("logs", None))
    settings = PlannerTraining(**{**SMALL, **given})
    return train_planner(TURNS, environment or Letters(), base, job, settings)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return found


def test_what_cannot_be_trained_with_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no question with an answer"):
        train_planner([Query("1", "Why?")], Letters(), "a model", PlannerJob(tmp_path / "out"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ModelError, match="holds other files"):
        PlannerJob(tmp_path / "full").check()
    (tmp_path / "out.training").mkdir(exist_ok=True)
    with pytest.raises(InputError, match="unfinished training"):
        PlannerJob(tmp_path / "out").check()
    with pytest.raises(InputError, match="group must be at least 2"):
        PlannerTraining(group=1)
    with pytest.raises(InputError, match="learning_rate"):
        PlannerTraining(learning_rate=float("nan"))


def test_a_training_is_resumed_with_the_same_settings_only(tmp_path: Path) -> None:
    path = tmp_path / "planner.json"
    told = {"training": {"steps": 2, "checkpoint_every": 1}, "reward": {"final": 1.0}, "data": "ab", "command": "one"}
    path.write_text(json.dumps(told))
    grpo._check_same(path, {**told, "command": "another", "training": {"steps": 2, "checkpoint_every": 5}})
    with pytest.raises(InputError, match="steps = 2, not 3"):
        grpo._check_same(path, {**told, "training": {"steps": 3}})
    with pytest.raises(InputError, match=r"final = 1\.0, not 2\.0"):
        grpo._check_same(path, {**told, "reward": {"final": 2.0}})


def test_of_checkpoints_the_last_whole_one_counts_and_the_curve_ends_there(tmp_path: Path) -> None:
    for step, state in ((2, "{}"), (10, "{}"), (12, '{"half')):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(state)
    last = grpo._last_checkpoint(tmp_path)
    assert last is not None
    assert last.name == "checkpoint-10"
    curve = tmp_path / "training.jsonl"
    curve.write_text('{"step": 9, "reward": 1}\n{"step": 10, "reward": 2}\n{"step": 11, "reward": 3}\n{"st')
    assert [row["reward"] for row in grpo._read_curve(curve, 10)] == [1, 2]
    assert len(curve.read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_toy_policy_learns_the_plan_that_earns_more(base: Path, tmp_path: Path) -> None:
    # All weights: the drawn embeddings are so short that LoRA, which leaves them, can hardly prefer a token.
    curve = run(base, tmp_path / "out", Letters("e"), steps=18, group=8, full=True)
    first, last = (sum(row["reward"] for row in part) / 4 for part in (curve[:4], curve[-4:]))
    assert last > 1.5 * first


@pytest.mark.slow
def test_a_training_that_was_stopped_and_killed_ends_with_the_weights_of_one_that_was_not(base: Path, tmp_path: Path) -> None:
    def stopped(line: str) -> None:
        if line.startswith("step 1 "):
            signal.raise_signal(signal.SIGINT)

    def killed(line: str) -> None:
        if line.startswith("step 5 "):
            raise KeyboardInterrupt

    few: dict[str, Any] = {"steps": 6, "checkpoint_every": 4}
    run(base, tmp_path / "whole", **few)
    with pytest.raises(KeyboardInterrupt):
        run(base, tmp_path / "out", **few, notify=stopped)
    # Ctrl-C is heeded at the end of the step under way, with a checkpoint.
    assert [place.name for place in (tmp_path / "out.training").glob("checkpoint-*")] == ["checkpoint-2"]
    with pytest.raises(KeyboardInterrupt):
        run(base, tmp_path / "out", **few, notify=killed, resume=True)
    curve = run(base, tmp_path / "out", **few, resume=True)
    assert [row["step"] for row in curve] == [1, 2, 3, 4, 5, 6]
    plans = [json.loads(line) for line in (tmp_path / "out" / "plans.jsonl").read_text().splitlines()]
    assert [row["step"] for row in plans] == [step for step in range(1, 7) for _ in range(4)]
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "out")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(bool(value.any()) for name, value in one.items() if "lora_B" in name)
    assert not (tmp_path / "out.training").exists()


@pytest.mark.slow
def test_the_prompt_that_is_trained_on_is_the_one_that_runs(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    from langgraph_convcoa.graph import build_graph
    from langgraph_convcoa.training.planner.shared_prompt import SharedPromptTrainer

    trained: list[list[int]] = []
    generate = SharedPromptTrainer._generate_single_turn

    def seen(self: Any, prompt_ids: Any, *given: Any, **named: Any) -> Any:
        trained.extend(prompt_ids)
        return generate(self, prompt_ids, *given, **named)

    monkeypatch.setattr(SharedPromptTrainer, "_generate_single_turn", seen)
    # Plans are so short that the graph's own environment finds each malformed: all groups are equal.
    curve = run(base, tmp_path / "out", Environment(Library()), steps=1, logs=tmp_path / "logs")
    assert len(list((tmp_path / "logs").glob("events.*"))) == 1
    plans = [json.loads(line) for line in (tmp_path / "out" / "plans.jsonl").read_text().splitlines()]
    assert [(row["step"], row["reward"], row["fault"]) for row in plans] == [(1, -2, "no JSON")] * 4
    assert {row["id"] for row in plans} == {turn.id for turn in TURNS}
    assert curve[0]["turn/malformed"] == curve[0]["frac_reward_zero_std"] == 1
    assert curve[0]["reward"] == -2
    assert not any(bool(value.any()) for name, value in weights(tmp_path / "out").items() if "lora_B" in name)

    from transformers import LlamaForCausalLM

    sent: list[list[int]] = []

    def answered(self: Any, input_ids: Any, **named: Any) -> Any:
        sent.append(input_ids[0].tolist())
        return torch.cat([input_ids, input_ids.new_tensor([[tokens[0]]])], dim=1)

    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(base)(PLANS[0]).input_ids
    monkeypatch.setattr(LlamaForCausalLM, "generate", answered)
    graph = build_graph(
        model=f"huggingface:{base}", adapter=tmp_path / "out", retriever=Library(), context={"look_first": False}
    ).compile()
    for turn in TURNS:
        sent.clear()
        earlier = [message for asked, said in turn.history for message in (HumanMessage(asked), AIMessage(said))]
        graph.invoke({"messages": [*earlier, HumanMessage(turn.question)]})
        assert sent[0] in trained


@pytest.mark.slow
def test_a_step_without_any_reward_and_a_full_disk_end_the_training(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Letters):
        async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
            return [None for _ in plans]

    with pytest.raises(InputError, match="No plan of this step"):
        run(base, tmp_path / "out", Failing(), steps=1)

    from transformers import Trainer

    def full(*_given: Any, **_named: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Trainer, "_save_checkpoint", full)
    with pytest.raises(ModelError, match="No space left on device"):
        run(base, tmp_path / "other", steps=1)
